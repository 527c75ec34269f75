"""Holds what runs inside Ray's processes.

`submit --debug` sends the package `rayside_hook` along with a job. The relay has workers evaluate the text of
the modules in `evaluated`. Ray's image runs `start.py` whenever a Python of it starts.
"""
