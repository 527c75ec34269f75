"""Verbs of the debugger, for clusters that are recorded on this machine."""
