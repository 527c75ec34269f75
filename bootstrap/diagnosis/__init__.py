"""Diagnosis of what failed or is stuck on a cluster: evidence is gathered once, then explained."""
