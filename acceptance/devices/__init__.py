"""What the devices of a host say of themselves before a service starts, and at window edges."""
