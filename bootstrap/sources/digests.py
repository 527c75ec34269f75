"""Digests that fetched files and images must have: recorded ones, else from the first fetch."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from bootstrap.errors import BadChecksum
from bootstrap.settings import ROOT
from rayside.errors import RaysideError
from rayside.private_file import replace_whole
from rayside.steps.step import Report
from rayside.system.lock import alone

# Recorded digests of releases, extensions and images; `./invokew lock` writes them.
RECORDED = ROOT / "requirements" / "digests.json"


@dataclass(frozen=True)
class Digests:
    """Expected digests, by name with version and platform, as in `kind-0.33.0-linux-amd64`.

    A digest is a file's SHA-256 in hexadecimal, or an image's as registries write it (`sha256:...`).

    Attributes:
        cache_folder: has the digests of first fetches, for names that the repository does not record.
        recorded: the repository's file, which has priority.
    """

    cache_folder: Path
    recorded: Path = RECORDED

    def of(self, name: str) -> str | None:
        """Returns the digest that `name` must have; None if it is not recorded and was never fetched."""
        return self._recorded.get(name) or _read(self._first).get(name)

    def keep(self, name: str, digest: str, report: Report) -> None:
        """Records the digest of a first fetch, unless one is recorded; others are refused from then on."""
        self.cache_folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with alone(self._first.with_suffix(".lock"), lambda: None):
            if self.of(name) is None:
                _write(self._first, {**_read(self._first), name: digest})
                report(f"{name} is held to the digest of this first fetch from now on, {digest}")

    @cached_property
    def _recorded(self) -> dict[str, str]:
        return _read(self.recorded)

    @property
    def _first(self) -> Path:
        return self.cache_folder / "digests.json"


def record(file: Path, published: Mapping[str, Callable[[], str]], report: Report) -> None:
    """Records the currently published digests in `file`; unreachable ones are reported, and unchanged.

    `published` has a function for each name that gets its digest; other names are dropped. Raises BadChecksum
    if a recorded digest differs from the published one; nothing is written then.
    """
    before = _read(file)
    after: dict[str, str] = {}
    differ: list[str] = []
    for name, ask in published.items():
        try:
            digest = ask()
        except BadChecksum:
            raise
        except RaysideError as error:
            report(f"{name} could not be recorded: {error.message}")
            digest = before.get(name, "")
        if before.get(name, digest) != digest:
            differ.append(f"{name} is recorded as {before[name]}, and {digest} is published")
        if digest:
            after[name] = digest
    if differ:
        raise BadChecksum(
            "; ".join(differ),
            hint=f"find out why: releases do not change. To believe it, remove the line from {file}",
        )
    _write(file, after)


def _read(file: Path) -> dict[str, str]:
    try:
        return dict(json.loads(file.read_text()))
    except FileNotFoundError:
        return {}


def _write(file: Path, digests: Mapping[str, str]) -> None:
    replace_whole(file, json.dumps(dict(sorted(digests.items())), indent=2) + "\n", 0o644)
