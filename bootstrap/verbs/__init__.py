"""Verbs of `tasks.py`: each carries out a plan, and prints its result."""
