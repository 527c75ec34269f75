"""Steps: states that can be checked and established; one noun a file."""
