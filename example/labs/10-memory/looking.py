"""Looks at memory: of this process, of another one, and of Ray's objects."""

import functools
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from ray.util.state import list_objects

# Ray's workers block the signal of Ctrl-C, and so does what they start; it ends mprof in good order.
MPROF = (
    "import signal; signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT]); import mprof; mprof.main()"
)


def mebibytes() -> int:
    """Returns how much memory this process has (its resident set)."""
    import psutil  # Ray brings it, and makes it known when it is imported.

    return psutil.Process().memory_info().rss >> 20


def here() -> tuple[int, str]:
    return os.getpid(), ray.get_runtime_context().get_node_id()


def by_line(function):
    """Has memory_profiler say how much more memory the process has after each line."""

    @functools.wraps(function)
    def wrapper(*arguments):
        # It comes with the job, by --py-modules, and lets Python find memory_profiler.
        import profilers  # noqa: F401
        from memory_profiler import profile

        return profile(function, stream=sys.stdout)(*arguments)

    return wrapper


def watch(reader, batches, without) -> str:
    """Returns what mprof writes of an actor's process while that reads so many batches."""
    pid, node = ray.get(reader.pid_and_node.remote())
    strategy = NodeAffinitySchedulingStrategy(node, soft=False)
    return ray.get(samples.options(scheduling_strategy=strategy).remote(pid, reader, batches, without))


@ray.remote(num_cpus=0)
def samples(pid, reader, batches, without) -> str:
    import profilers

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "memory.dat")
        command = [sys.executable, "-c", MPROF, "attach", "--output", str(file), str(pid)]
        environment = {**os.environ, "PYTHONPATH": profilers.__path__[0], "PYTHONUNBUFFERED": "1"}
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
        with subprocess.Popen(command, env=environment, **streams) as mprof:
            # It says `attaching to existing process`, and begins.
            next(line for line in mprof.stdout if "attaching" in line)
            for batch in range(batches):
                ray.get(reader.read.remote(batch, without))
            # It would watch for an hour; Ctrl-C has it write what it has.
            mprof.send_signal(signal.SIGINT)
        return file.read_text()


def show_objects() -> None:
    """Prints the objects that this driver holds in Ray's object store."""
    # The table is about a second late.
    time.sleep(2)
    sizes = Counter()
    counts = Counter()
    for row in list_objects(filters=[("pid", "=", os.getpid())], detail=True):
        if row.object_size > 100_000:
            counts[row.reference_type] += 1
            sizes[row.reference_type] += row.object_size
    for kind, count in counts.items():
        print(f"objects: {count} of type {kind}, {sizes[kind] >> 10} KiB")
