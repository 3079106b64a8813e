"""Scores of compressed rows for a query, from its prepared index heads."""
