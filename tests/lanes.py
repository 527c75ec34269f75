"""Lanes and shards: which tests share a process, in what order, and which part of all tests they belong to.

Two processes run the tests, as many as two CPUs can carry. Each runs one lane after the other, and a lane in
order. All tests with the Docker engine are one lane, as they share a kind cluster; all with a real Ray are
another, as two Ray clusters that start at once starve each other; every other file is a separate lane.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path, PurePosixPath

KIND, RAY = "kind", "ray"

# Fixtures of tests/integration that start a real Ray cluster.
WITH_RAY = {"rayside", "up"}
# Modules with a Ray cluster that run in parallel to the Ray lane, which would be the longest otherwise.
BESIDE = {"test_labs"}
# The test that makes the kind cluster step by step; all later tests share the cluster.
FIRST = "test_up_killed_at_each_step_goes_on"
# The module whose other tests break parts of the cluster that the rest needs: engine, head, forwards.
LAST = "test_kind_faults"
# Seconds that each file took in a whole run, by its path below tests/; NEW for a file that is missing there.
SECONDS = Path(__file__).with_name("seconds.json")
NEW = 5.0


def lane(file: PurePosixPath, fixtures: Iterable[str] = ()) -> str:
    """Returns the lane of a test that uses `fixtures`, in a file such as `tests/unit/rayside/test_dap.py`."""
    suite = file.parts[1]
    if suite == "e2e":
        # It runs the pages' commands on a local Ray cluster, except commands that need kind.
        return RAY if file.stem == "test_readme" and "kind" not in fixtures else KIND
    if suite == "browser":
        return RAY
    with_ray = suite == "integration" and file.stem not in BESIDE and not WITH_RAY.isdisjoint(fixtures)
    return RAY if with_ray else "/".join(file.parts[1:])


def place(file: PurePosixPath, test: str, lane: str) -> tuple[int, float]:
    """Returns the sort key of a test.

    A Ray cluster starts after the kind cluster was made: both at once are too much for two CPUs. In the
    lane of kind, FIRST and LAST set the order; elsewhere the slowest file comes first.
    """
    if lane == KIND:
        return 0, -1 if test == FIRST else 1 if file.stem == LAST else 0
    return 2 if lane == RAY else 3 if file.parts[1] == "unit" else 1, -seconds(file)


def seconds(file: PurePosixPath) -> float:
    """Returns the duration of a file in seconds, from SECONDS."""
    return float(_recorded().get("/".join(file.parts[1:]), NEW))


@cache
def _recorded() -> dict[str, float]:
    return dict(json.loads(SECONDS.read_text())) if SECONDS.exists() else {}


def shards(files: Iterable[PurePosixPath], count: int) -> dict[PurePosixPath, int]:
    """Returns the shard of each file, from 1 to `count`.

    Each suite is cut into `count` pieces of about equal duration by SECONDS, so that each shard has files for
    every lane. The files of a suite are sorted by name, so that the pieces are stable.
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
