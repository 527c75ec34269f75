"""Does what each verb of `tasks.py` says: carries out the plan, and prints its result."""
