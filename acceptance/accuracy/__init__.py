"""The accuracy stage around the pure scorer `acceptance.gsm8k`: data, run, figures, files (P5)."""
