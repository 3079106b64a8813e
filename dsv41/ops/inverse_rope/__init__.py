"""The rotation undone at the position of the query."""
