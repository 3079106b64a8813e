"""Draft logits corrected by the token drafted before."""
