"""Says what ended or is stuck on a cluster, where and why: gathers evidence once, then explains it."""
