"""Has the debugger: DAP framing, a client for one debuggee, the relay, the terminal and the scripted one."""
