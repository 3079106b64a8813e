"""Table rows gated into every copy of the stream."""
