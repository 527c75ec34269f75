"""Tells what took how long: each step of a run, and the chain of steps that decided the whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any


@dataclass(frozen=True)
class Timing:
    """A step's start, in seconds since the start of the run, its duration, whether it changed anything."""

    name: str
    started: float
    seconds: float
    changed: bool

    def document(self) -> dict[str, Any]:
        """Returns it as `status --json` lists it."""
        return {"name": self.name, "started": round(self.started, 3), "seconds": round(self.seconds, 3)}


def critical_path(needs_of: Mapping[str, Sequence[str]], timings: Sequence[Timing]) -> list[str]:
    """Returns the chain of needs that took longest, first to last: what to speed up to finish sooner."""
    seconds = {timing.name: timing.seconds for timing in timings}
    # A need that is not among the steps counts as met.
    needs = {name: [need for need in names if need in needs_of] for name, names in needs_of.items()}
    best: dict[str, tuple[float, list[str]]] = {}
    for name in TopologicalSorter(needs).static_order():
        before = max((best[need] for need in needs[name]), default=(0.0, []), key=lambda chain: chain[0])
        best[name] = (before[0] + seconds.get(name, 0.0), [*before[1], name])
    return max(best.values(), default=(0.0, []), key=lambda chain: chain[0])[1]
