"""Speaks DAP: what the relay and the debuggers of this machine share."""
