"""DAP client, framing and common messages, shared by the relay and the debuggers on this machine."""
