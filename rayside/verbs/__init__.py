"""Verbs of the debugger, on a cluster that this machine knows."""
