"""Clients of Ray's APIs: the State API (state.py), job submission (jobs.py)."""
