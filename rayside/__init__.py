"""The debugger of Rayside: shows a whole Ray cluster to an editor as one process."""

__version__ = "0.1.0"
