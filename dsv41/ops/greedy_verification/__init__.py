"""Drafts accepted while they are the target's own choice."""
