"""Third-party Go programs for tests and benchmarks only, built from the modules of image/programs/."""

from __future__ import annotations

from pathlib import Path

from bootstrap.settings import Settings
from bootstrap.sources.go import Go, GoPrograms
from rayside.steps.step import Condition
from rayside.system.shell import Shell


def built(name: str, package: str, version: str) -> Path:
    """Returns the program of that name from image/programs/NAME; builds it if it is missing."""
    cache, shell = Settings().cache_folder, Shell()
    go = Go(shell, cache)
    programs = GoPrograms(shell, go, cache, name, name, name, version, ((name, package),))
    for step in (go, programs):
        if step.check().condition is Condition.MISSING:
            step.apply(lambda _: None)
    return programs.folder / name
