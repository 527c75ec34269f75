"""Steps, the things that can be made true: one noun a file."""
