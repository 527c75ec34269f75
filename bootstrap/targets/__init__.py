"""Targets, where Ray runs: each with a list of steps, and access to its Ray cluster."""
