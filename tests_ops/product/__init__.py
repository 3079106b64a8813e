"""The product's model driven without an engine, for comparison with the oracle."""
