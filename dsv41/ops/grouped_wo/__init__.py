"""The output projection by groups of heads."""
