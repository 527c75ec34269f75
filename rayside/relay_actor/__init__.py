"""Runs inside a Ray that others made: the debug relay as an actor, and the job that begins and ends it."""
