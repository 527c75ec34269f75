"""Port forwards to a remote debug relay, which keep an editor's session while the connection is lost."""
