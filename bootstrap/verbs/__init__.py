"""What each verb of `tasks.py` does: the plan carried out, and its result told."""
