"""What can be made true: one noun a file."""
