"""Talks to Kubernetes: reads, forwards, RayJobs, and what became of a pod."""
