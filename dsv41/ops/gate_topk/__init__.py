"""The router: scores, a defined choice, and weights."""
