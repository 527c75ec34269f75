"""Holds what runs inside Ray's processes.

`submit --debug` sends the package `rayside_hook` along with a job, and the relay has workers call what is in
its `evaluated`. Ray's image has the package, too, and runs `start.py` whenever a Python of it starts.
"""
