"""Rotation of neighbouring pairs by position."""
