"""Reaches machines by OpenSSH, with the user's own configuration."""
