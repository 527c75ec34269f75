"""Lanes and shards: which tests share a process, in what order, and which piece of all tests they belong to.

Two processes run the tests, for that is what two processors carry. Each takes one lane after the other, and
runs a lane in order. All tests with the Docker engine are one lane, for they share a kind cluster; all with a
real Ray are another, for two Rays that start at once starve each other; every other file is a lane by itself.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path, PurePosixPath

KIND, RAY = "kind", "ray"

# The fixtures of tests/integration that bring up a real Ray.
WITH_RAY = {"rayside", "up"}
# The modules that have a Ray and run beside that of the lane, which would be the longest otherwise.
BESIDE = {"test_labs"}
# What makes the kind cluster in pieces, which all that come after it share.
FIRST = "test_up_killed_at_each_step_goes_on"
# The module whose other tests take from the cluster what the rest needs: the engine, the head, the forwards.
LAST = "test_kind_faults"
# Seconds that each file took in a whole run, by its path below tests/; NEW for a file that it lacks.
SECONDS = Path(__file__).with_name("seconds.json")
NEW = 5.0


def lane(file: PurePosixPath, fixtures: Iterable[str] = ()) -> str:
    """Returns the lane of a test that uses `fixtures`, in a file such as `tests/unit/rayside/test_dap.py`."""
    suite = file.parts[1]
    if suite == "e2e":
        # It follows the pages on a Ray of this machine, but for the commands that need kind.
        return RAY if file.stem == "test_readme" and "kind" not in fixtures else KIND
    if suite == "browser":
        return RAY
    with_ray = suite == "integration" and file.stem not in BESIDE and not WITH_RAY.isdisjoint(fixtures)
    return RAY if with_ray else "/".join(file.parts[1:])


def place(file: PurePosixPath, test: str, lane: str) -> tuple[int, float]:
    """Returns where a test is in the order of all.

    A Ray cluster starts when the kind cluster has been made: both at once are more than two processors
    carry. Within the lane of kind FIRST and LAST say the order; elsewhere the slowest file comes first.
    """
    if lane == KIND:
        return 0, -1 if test == FIRST else 1 if file.stem == LAST else 0
    return 2 if lane == RAY else 3 if file.parts[1] == "unit" else 1, -seconds(file)


def seconds(file: PurePosixPath) -> float:
    """Returns how long a file takes, by SECONDS."""
    return float(_recorded().get("/".join(file.parts[1:]), NEW))


@cache
def _recorded() -> dict[str, float]:
    return dict(json.loads(SECONDS.read_text())) if SECONDS.exists() else {}


def shards(files: Iterable[PurePosixPath], count: int) -> dict[PurePosixPath, int]:
    """Returns the shard of each file, from 1 to `count`.

    Each suite is cut into `count` pieces that take about as long by SECONDS, so that each shard has something
    for every lane. The files of a suite are in the order of their names: what is cut stays so.
    """
    by_suite: dict[str, list[PurePosixPath]] = defaultdict(list)
    for file in sorted(set(files)):
        by_suite[file.parts[1]].append(file)
    shard = {}
    for suite in by_suite.values():
        done, whole = 0.0, sum(map(seconds, suite))
        for file in suite:
            # The piece in which the middle of the file lies.
            shard[file] = int((done + seconds(file) / 2) / whole * count) + 1
            done += seconds(file)
    return shard
