"""Versions that the debugger is made for: pins, which bootstrap/settings.py has from here."""

DEBUGPY = "1.8.22"
# It writes code with breakpoints in it; the newest that runs on Python 3.10, the oldest that we support.
BYTECODE = "0.17.0"
