"""Says where the logs of this cluster are, as a worker on each kind of stream sees it."""

import os
from pathlib import Path

import ray


@ray.remote(num_cpus=0)
def streams():
    # A worker's standard output and standard error are files.
    return [os.path.realpath(f"/proc/self/fd/{number}") for number in (1, 2)]


ray.init()
out, err = map(Path, ray.get(streams.remote()))
print(f"logs: {out.parent}")
print(f"what a worker prints: {out.name}")
print(f"what a worker logs:   {err.name}")
own = sorted(file.name for file in out.parent.glob("*.out") if "worker-" not in file.name)
print(f"Ray's own: {' '.join(own)}")
