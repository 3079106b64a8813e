"""Attention over a window and chosen rows, with a sink."""
