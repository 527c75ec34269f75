"""Shows what the cluster has, what is reserved of it, and what the tasks that have not ended ask for."""

import ray
from ray.util.state import list_placement_groups, list_tasks


def readable(resources: dict[str, float]) -> dict[str, float]:
    # Each node has a resource of its own name, and each reserved bundle has some: they say nothing here.
    return {name: amount for name, amount in resources.items() if "_group_" not in name and ":" not in name}


ray.init(log_to_driver=False)
print(f"the cluster has {readable(ray.cluster_resources())}")
print(f"free of that is {readable(ray.available_resources())}")
for group in list_placement_groups(detail=True):
    if group.state != "REMOVED":
        bundles = [bundle["unit_resources"] for bundle in group.bundles]
        print(f"a placement group is {group.state} with {bundles}")
for task in list_tasks(filters=[("state", "!=", "FINISHED"), ("state", "!=", "FAILED")], detail=True):
    print(f"{task.name} is {task.state} and asks for {readable(task.required_resources)}")
