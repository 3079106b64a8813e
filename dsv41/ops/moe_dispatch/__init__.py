"""Tokens laid out expert by expert."""
