"""Checks that hold for every operator, and the harnesses that they run in."""
