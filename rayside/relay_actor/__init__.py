"""Programs in an existing Ray cluster: the debug relay as an actor, and the job that starts and ends it."""
