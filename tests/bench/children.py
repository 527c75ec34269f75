"""Measures what a debugger costs a process that starts others: `./invokew bench --name children`.

Needs nothing to be up; takes a minute. One Python forks itself, and starts Pythons that do nothing, one after
the other and each until it has ended

- as it is,
- with the port of `--debug` open and nobody there,
- with an editor that leaves children out,
- with an editor that has them, which attaches to each before it runs.

The figures are medians within one process, and their ratios to the first.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.integration.pythons import hows_environment
from tests.integration.relay_debuggees import LISTENS, Process, hooked, relay_over

# What runs before the program where nobody debugs it.
NOBODY = {"as it is": "", "with a port": LISTENS}
WITHOUT, LAST = "with an editor, without its children", "with an editor and its children"
RUNS = 5
PATIENCE = 120.0  # seconds for one run, which takes a few
PROGRAM = """\
import json, os, statistics, subprocess, sys, time

def fork():
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)

def start():
    subprocess.run([sys.executable, "-c", "pass"], check=True)

def seconds(act):
    began = time.perf_counter()
    act()
    return time.perf_counter() - began

print(json.dumps([statistics.median(seconds(act) for _ in range(20)) for act in (fork, start)]), flush=True)
"""


def alone(folder: Path, before: str) -> list[float]:
    """Returns the medians of a process that nobody debugs; `before` is run before the program."""
    environment = hooked(folder, hows_environment("settrace"))
    command = [sys.executable, "-c", before + PROGRAM]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    return list(json.loads(done.stdout.splitlines()[-1]))


async def debugged(folder: Path, children: bool) -> list[float]:
    """Returns the medians of a process with a breakpoint that it does not reach."""
    environment = hows_environment("settrace")
    async with relay_over(folder) as setting:
        await setting.attach({"other.py": [1]}, children=children)
        await setting.cluster.start("a = 1\n", name="other.py", count=0)
        process: Process
        (process,) = await setting.cluster.start(PROGRAM, python=sys.executable, environment=environment)
        return list(json.loads((await process.end())[-1]))


def measured(way: str) -> list[float]:
    with tempfile.TemporaryDirectory() as name, contextlib.redirect_stdout(io.StringIO()):  # the relay's log
        if way in NOBODY:
            return alone(Path(name), NOBODY[way])
        return asyncio.run(asyncio.wait_for(debugged(Path(name), children=way == LAST), PATIENCE))


def main() -> None:
    medians: dict[str, list[list[float]]] = {way: [] for way in (*NOBODY, WITHOUT, LAST)}
    for _ in range(RUNS):
        for way, figures in medians.items():
            figures.append(measured(way))
    plain = next(iter(medians.values()))
    for column, what in enumerate(("a fork", "a Python that is started")):
        for way, figures in medians.items():
            seconds = statistics.median(figure[column] for figure in figures)
            ratios = [own[column] / its[column] for own, its in zip(figures, plain, strict=True)]
            print(
                f"{what}, {way}: {seconds * 1000:.1f} ms, ratio {statistics.median(ratios):.2f} "
                f"({min(ratios):.2f} to {max(ratios):.2f}, {RUNS} runs)",
                flush=True,
            )


if __name__ == "__main__":
    main()
