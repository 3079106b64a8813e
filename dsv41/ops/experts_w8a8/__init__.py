"""Routed experts in int8, with masked rows."""
