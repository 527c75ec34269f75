"""RayJobs: the documents, their submission by kubectl-ray, and what is watched while it waits."""
