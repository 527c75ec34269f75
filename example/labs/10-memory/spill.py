"""Fills the object store of a small Ray of its own, and shows what `ray memory` says before and after.

The store of your cluster has gigabytes, so this job starts another Ray beside it, with 80 MB.
"""

import subprocess

import ray

MEGABYTE = 1_000_000


def show(when: str) -> None:
    command = ["ray", "memory", "--stats-only", "--address", ray.get_runtime_context().gcs_address]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    for line in lines:
        if "Plasma" in line or "pilled" in line:
            print(f"{when}: {line.strip()}")


ray.init(address="local", num_cpus=1, object_store_memory=80 * MEGABYTE, include_dashboard=False)
blocks = [ray.put(bytes(10 * MEGABYTE)) for _ in range(16)]
show("with 16 references")
print(f"the first block has {len(ray.get(blocks[0]))} bytes")
del blocks
show("without a reference")
