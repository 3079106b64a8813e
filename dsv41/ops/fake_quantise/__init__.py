"""Values rounded to the released number formats and back."""
