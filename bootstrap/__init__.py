"""Bootstrapper: makes a Ray cluster with a debugger beside it. `tasks.py` has its verbs."""
