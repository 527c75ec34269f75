"""Clients of Ray: the State API (state.py), job submission (jobs.py)."""
