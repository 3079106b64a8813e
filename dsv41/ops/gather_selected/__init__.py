"""The chosen compressed rows of each query, fetched through a block table."""
