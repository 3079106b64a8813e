"""Queries and the row that goes into the cache."""
