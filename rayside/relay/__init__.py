"""Runs beside the cluster's head: shows many debuggees to an editor as one process."""
