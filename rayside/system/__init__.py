"""Processes of this machine: started, identified, ended."""
