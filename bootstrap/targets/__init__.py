"""Targets, where Ray runs: each with its steps as one list, and access to its Ray."""
