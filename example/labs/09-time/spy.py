"""Looks into the workers that run `check` now, from outside: their code knows nothing of it."""

import re
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from ray.util.state import list_tasks


@ray.remote(num_cpus=0)
def samples(pid: int, seconds: int) -> str:
    """Returns what py-spy saw of a process of this node: for each stack a line, its frames and how often."""
    spy = [shutil.which("py-spy"), "record", "--format", "raw", "--pid", str(pid), "--duration", str(seconds)]
    # Where one process may not look into another, as on Ubuntu, it takes root.
    if shutil.which("sudo") and subprocess.run(["sudo", "-n", "true"], capture_output=True).returncode == 0:
        spy = ["sudo", "-n", *spy]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "stacks")
        done = subprocess.run([*spy, "--output", file], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return file.read_text()


def running() -> list:
    """Returns the tasks `check` that run now; Ray's table of tasks is about a second late."""
    for _ in range(60):
        tasks = list_tasks(filters=[("name", "=", "check"), ("state", "=", "RUNNING")], detail=True)
        if tasks:
            return tasks
        time.sleep(1)
    raise SystemExit("no task check runs: submit main.py with a number of rounds first")


for task in running():
    strategy = NodeAffinitySchedulingStrategy(task.node_id, soft=False)
    stacks = ray.get(samples.options(scheduling_strategy=strategy).remote(task.worker_pid, 2))
    innermost = Counter()
    for line in stacks.splitlines():
        frames, _, count = line.rpartition(" ")
        innermost[re.sub(r":\d+\)$", ")", frames.rpartition(";")[2])] += int(count)
    print(f"process {task.worker_pid} on node {task.node_id[:8]}, samples by innermost function:")
    for function, count in innermost.most_common(5):
        print(f"{count:6} {function}")
