"""Makes the numbers that many debuggees give to their threads, frames and variables one editor's."""

from __future__ import annotations

import itertools
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal

Kind = Literal["thread", "frame", "variables", "source", "target"]

# Numbers of these kinds mean something only while the debuggee is stopped.
OF_A_STOP: tuple[Kind, ...] = ("frame", "variables", "target")


class UnknownId(KeyError):
    """Says that the editor named a number that it was never given, or that has ended with its stop."""


@dataclass(frozen=True)
class OfAStop:
    """Owns the numbers of a stop: a debuggee and its thread, None where no thread was named."""

    owner: Hashable
    thread: int | None


class Ids:
    """Maps `(owner, kind, inner)` to `outer`, a number from 1 on that is given once, and back.

    An owner is a debuggee, `inner` its own number; `outer` is what the editor sees. DAP wants
    references below 2**31: https://microsoft.github.io/debug-adapter-protocol/specification#Types_Variable
    """

    def __init__(self) -> None:
        self._next = itertools.count(1)
        self._inner: dict[int, tuple[Hashable, Kind, int]] = {}
        self._outer: dict[tuple[Hashable, Kind], dict[int, int]] = {}

    def outer(self, owner: Hashable, kind: Kind, inner: int) -> int:
        """Returns the editor's number, a new one the first time."""
        known = self._outer.setdefault((owner, kind), {})
        if inner not in known:
            known[inner] = next(self._next)
            self._inner[known[inner]] = (owner, kind, inner)
        return known[inner]

    def inner(self, outer: object, kind: Kind) -> tuple[Hashable, int]:
        """Returns the owner and its own number. Raises UnknownId."""
        entry = self._inner.get(outer) if isinstance(outer, int) else None
        if entry is None or entry[1] != kind:
            raise UnknownId(outer)
        return entry[0], entry[2]

    def forget(self, owner: Hashable, kinds: tuple[Kind, ...] = (*OF_A_STOP, "thread", "source")) -> None:
        """Forgets the numbers of an owner that has ended, or has resumed (`OF_A_STOP`)."""
        for kind in kinds:
            for outer in self._outer.pop((owner, kind), {}).values():
                del self._inner[outer]

    def forget_stop(self, owner: Hashable, thread: int | None) -> None:
        """Forgets the numbers of a stop once that thread of the owner has resumed."""
        self.forget(OfAStop(owner, thread), OF_A_STOP)

    def __len__(self) -> int:
        return len(self._inner)
