"""Blocks first, then rows inside them: the two-level choice."""
