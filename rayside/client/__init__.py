"""Debuggers on this machine, for the terminal and for scripts: clients of the relay."""
