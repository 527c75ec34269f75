"""The debugger: DAP framing, a client for one debuggee, the terminal and the scripted debugger."""
