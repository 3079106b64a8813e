"""Verdicts as pytest outcomes (filled in below)."""
