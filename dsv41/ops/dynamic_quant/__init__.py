"""Per-token int8 codes and their step."""
