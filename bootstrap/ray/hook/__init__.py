"""Holds the package `rayside_hook`, which `submit --debug` sends along with a job, and runs inside Ray."""
