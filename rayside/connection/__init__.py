"""Identity of a Ray cluster that this machine knows, and the connections to it."""
