"""Bootstrapper: creates Ray clusters with a debugger. Its verbs are in `tasks.py`."""
