"""A trained DeepSeek V4.1 in small: its problems, tokenizer, training, weights and evaluation."""
