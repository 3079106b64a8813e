"""Routed experts in floating point."""
