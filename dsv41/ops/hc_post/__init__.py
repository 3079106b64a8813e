"""Hyper-connections: a sub-layer written back to the copies."""
