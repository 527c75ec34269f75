"""What the relay has run inside debuggees: each module's text is sent there, and imports nothing of ours."""
