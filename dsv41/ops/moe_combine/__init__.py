"""Experts' rows summed back into tokens."""
