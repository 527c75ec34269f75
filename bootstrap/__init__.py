"""Brings up Ray with a debugger beside it; `tasks.py` has the verbs, `plan.py` the order."""
