"""Rows kept or turned to zeros by a mask."""
