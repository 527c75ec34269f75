"""Types its arguments into `ray debug`, then `c`: python attach.py "p weights" "p parcels"

pdb listens on the loopback address of the task's node, so `ray debug` runs on that node, in a terminal
that nobody sees; what it shows is printed.
"""

import os
import pty
import select
import subprocess
import sys
import time

import ray
import waiting
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

INDEX, PDB = b"press enter to refresh: ", b"(Pdb) "


@ray.remote(num_cpus=0)
def ray_debug(address, number, commands):
    ours, theirs = pty.openpty()
    program = subprocess.Popen(
        ["ray", "debug", "--address", address],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "RAY_DEBUG": "legacy"},
    )
    shown = b""
    try:
        # Enter alone has it clear the list of what stopped jobs have left, which has numbers too.
        typed = [(INDEX, ""), (INDEX, str(number)), *((PDB, command) for command in commands), (PDB, "c")]
        for prompt, line in typed:
            shown += until(ours, prompt)
            os.write(ours, line.encode() + b"\n")
        shown += until(ours, INDEX)
    finally:
        # Ctrl-C would do nothing: Ray's workers ignore SIGINT, and so does what they start.
        program.terminate()
        program.wait(10)
    return shown.decode(errors="replace").replace("\r", "")


def until(terminal, prompt, patience=150.0):
    """Returns what a terminal shows up to that prompt."""
    shown = b""
    end = time.monotonic() + patience
    while not shown.endswith(prompt):
        if not select.select([terminal], [], [], max(0.0, end - time.monotonic()))[0]:
            raise TimeoutError(f"no prompt {prompt!r} after {shown!r}")
        shown += os.read(terminal, 4096)
    return shown


ray.init(log_to_driver=False)
task = waiting.newest()
print(f"it waits on the node {task['node_id'][:8]} at {task['pdb_address']}", flush=True)
there = NodeAffinitySchedulingStrategy(task["node_id"], soft=False)
address = ray.get_runtime_context().gcs_address
typing = ray_debug.options(scheduling_strategy=there).remote(address, task["number"], sys.argv[1:])
print(ray.get(typing))
