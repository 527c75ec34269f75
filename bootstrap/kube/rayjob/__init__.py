"""RayJobs: the documents, their submission through kubectl-ray, and a watcher of its waits."""
