"""Made-up run directories and byte streams, whole and with planted faults."""
