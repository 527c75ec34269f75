"""Runs inside debuggees: the relay sends them the text of each module, which imports nothing of ours."""
