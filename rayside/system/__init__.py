"""Processes of this machine: started, found again, ended."""
