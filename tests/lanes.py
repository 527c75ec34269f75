"""Says which tests run side by side: three lanes, each of them in order, in a process of its own.

What would be in its own way twice has one of them: the kind cluster with the Docker engine below it, and real
Rays with all the processor that they take.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath

KIND, RAY, REST = "kind", "ray", "rest"

# The fixtures of tests/integration that bring up a real Ray.
WITH_RAY = {"rayside", "up"}
# The modules that have a Ray in the lane of the others, which is the shorter one by more than they take.
EVEN = {"test_labs"}
# What makes the kind cluster in pieces, which all that come after it share.
FIRST = "test_up_killed_at_each_step_goes_on"
# The module whose other tests take from the cluster what the rest needs: the engine, the head, the forwards.
LAST = "test_kind_faults"


def lane(file: PurePosixPath, fixtures: Iterable[str] = ()) -> str:
    """Returns the lane of a test that uses `fixtures`, in a file such as `tests/unit/test_dap.py`."""
    suite = file.parts[1]
    if suite == "e2e":
        # It follows the pages on a Ray of this machine, but for the commands that need kind.
        return RAY if file.stem == "test_readme" and "kind" not in fixtures else KIND
    if suite == "browser":
        return RAY
    with_ray = suite == "integration" and file.stem not in EVEN and not WITH_RAY.isdisjoint(fixtures)
    return RAY if with_ray else REST


def place(file: PurePosixPath, test: str) -> int:
    """Returns where a test is in the order of its lane; tests of one place keep their order."""
    return -1 if test == FIRST else 1 if file.stem == LAST else 0
