"""Hyper-connections: the mix of a sub-layer and the collapse of the copies."""
