"""Gets programs and images."""
