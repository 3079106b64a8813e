"""N-grams hashed to table rows."""
