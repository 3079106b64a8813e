"""Fakes that run: scripted streams, a stub service, builders. For tests and benches only."""
