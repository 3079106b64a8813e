"""A linear of int8 weights and per-token int8 activations."""
