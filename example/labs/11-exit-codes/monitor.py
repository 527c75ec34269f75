"""Starts a small Ray of its own, whose memory monitor kills a task early.

The monitor of a Ray kills when its node has used 95 % of its memory. That is no place to go for a lab, so
this one gets a threshold 800 MB above what is used now.
"""

import os
import time

# A job's Ray would be the cluster's, and its files would be looked for there.
os.environ.pop("RAY_JOB_CONFIG_JSON_ENV_VAR", None)

import ray
from ray._private.utils import get_system_memory, get_used_memory

MEGABYTE = 1_000_000


@ray.remote(max_retries=0)
def load_rows():
    rows = []
    for _ in range(80):
        rows.append(b"x" * 50 * MEGABYTE)
        time.sleep(0.1)


threshold = (get_used_memory() + 800 * MEGABYTE) / get_system_memory()
os.environ.update(RAY_memory_usage_threshold=str(threshold))
ray.init(
    "local",
    num_cpus=1,
    include_dashboard=False,
    object_store_memory=80 * MEGABYTE,
    _node_ip_address="127.0.0.1",
)
ray.get(load_rows.remote())
