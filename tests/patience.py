"""Timeout for actions of real processes in tests."""

# Seconds. Only a broken test waits so long, even on a slow or busy machine.
PATIENCE = 120.0
