"""Debugs from this machine, in the terminal or by a script: a client of the relay."""
