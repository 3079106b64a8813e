"""SwiGLU whose gate and value are clipped first."""
