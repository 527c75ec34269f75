"""Verbs of `tasks.py`: each executes a plan, and prints its result."""
