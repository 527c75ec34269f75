"""Bakes loaves, each in a task of one processor, and says on how many nodes the cluster had them."""

import time

import ray


@ray.remote(num_cpus=1)
def bake(loaf: int) -> str:
    time.sleep(1)
    return ray.get_runtime_context().get_node_id()


ray.init()
print(f"processors at the beginning: {int(ray.cluster_resources().get('CPU', 0))}", flush=True)
ovens = ray.get([bake.remote(loaf) for loaf in range(4)], timeout=240)
print(f"baked {len(ovens)} loaves on {len(set(ovens))} node", flush=True)
