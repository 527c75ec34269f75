"""DAP server on the cluster's head node that shows many debuggees to an editor as one process."""
