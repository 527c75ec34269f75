"""Where programs and images come from."""
