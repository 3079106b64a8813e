"""Rows written to the slots of their tokens."""
