"""Diagnosis of failed and stuck parts of a cluster: evidence is gathered once, then explained."""
