"""Compressed rows and index keys of the groups that tokens complete."""
