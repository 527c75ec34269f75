"""Kubernetes: API client, RayJobs, permissions, sizes, and causes of pods' failures."""
