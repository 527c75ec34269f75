"""Search for secret values in a debuggee, by their names, for the relay to mask them.

It covers the variables of the user's frames and modules, and nested containers and objects, but calls none of
their code: no property, no `repr`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from types import FrameType, FunctionType, MemberDescriptorType, ModuleType
from typing import Any

from ..redaction import SHORTEST
from ..secret_names import SecretNames
from ..tracing import debugger

# Limits of one search: found values, characters of each and of all, and seconds.
MOST, LONGEST, LONGEST_IN_ALL, MOST_SECONDS = 100, 4_096, 16_384, 0.2
# Limits: scanned objects, nesting depth, items of an object, and frames of a thread.
MOST_OBJECTS, DEEPEST, MOST_ITEMS, MOST_FRAMES = 20_000, 5, 200, 50
# Under a secret's name, a list with more items holds no secrets but the words of a text.
MOST_OF_A_LIST = 10
_SUSPENDED = 2  # pydevd_constants.py
_NOT_LOOKED_INTO = (ModuleType, FunctionType, type, FrameType, int, float, complex, type(None))


class _Search:
    def __init__(self, rule: str) -> None:
        self._is_secret = SecretNames(rule).include
        self.seen: set[int] = set()
        self._taken: set[int] = set()  # containers
        self._until = time.monotonic() + MOST_SECONDS
        self.values: dict[str, None] = {}
        self._room = LONGEST_IN_ALL

    @property
    def ended(self) -> bool:
        return len(self.values) >= MOST or len(self.seen) >= MOST_OBJECTS or time.monotonic() > self._until

    def look(self, name: object, value: Any, depth: int = 0) -> None:
        if _is(name, str) and self._is_secret(str.__str__(name)):
            self._take(value)
        elif depth < DEEPEST and not self.ended and not _is(value, str, bytes, *_NOT_LOOKED_INTO):
            if id(value) in self.seen:
                return
            self.seen.add(id(value))
            for inner, item in _items(value):
                self.look(inner, item, depth + 1)

    def _take(self, value: Any, depth: int = 0) -> None:
        """Collects all texts in a value with a secret's name; in objects, attributes with such a name."""
        if self.ended:
            return
        if _is(value, bytes):
            value = bytes.__getitem__(value, slice(LONGEST + 1)).decode("utf-8", "replace")
        if _is(value, str):
            text = str.__str__(value)
            if SHORTEST <= len(text) <= min(LONGEST, self._room) and text not in self.values:
                self.values[text] = None
                self._room -= len(text)
        elif not _is(value, dict, list, tuple, set, frozenset):
            self.look(None, value, depth)
        elif depth < DEEPEST and id(value) not in self._taken:
            self._taken.add(id(value))
            items = list(_items(value))
            if _is(value, dict) or len(items) <= MOST_OF_A_LIST:
                for _, item in items:
                    self._take(item, depth + 1)


def _is(value: object, *kinds: type) -> bool:
    """Returns whether a value's real type is one of these: `isinstance` would use its `__class__`."""
    return issubclass(type(value), kinds)


def _items(value: Any) -> Iterator[tuple[object, Any]]:
    """Yields the items of a container or the attributes of an object, each with its name or None."""
    # A subclass's methods are the user's code: the methods of the base are called.
    if _is(value, dict):
        yield from list(dict.items(value))[:MOST_ITEMS]
    for base in (list, tuple, set, frozenset):
        if _is(value, base):
            yield from ((None, item) for item in list(base.__iter__(value))[:MOST_ITEMS])
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except Exception:
        attributes = {}
    if type(attributes) is dict:
        yield from list(attributes.items())[:MOST_ITEMS]
    for base in type.__getattribute__(type(value), "__mro__"):
        for name, member in list(type.__getattribute__(base, "__dict__").items())[:MOST_ITEMS]:
            if type(member) is MemberDescriptorType:  # of __slots__
                try:
                    yield name, member.__get__(value, type(value))
                except Exception:
                    continue  # a slot without a value


def _users_frames() -> Iterator[FrameType]:
    """Yields the frames of the user's code in the threads that are stopped, the innermost of each first."""
    pydevd = debugger()
    innermost = sys._current_frames()
    for thread in threading.enumerate():
        # Access to a frame's locals keeps their values alive until it ends: skips running threads.
        stopped = getattr(getattr(thread, "additional_info", None), "pydev_state", None) == _SUSPENDED
        frame = innermost.get(thread.ident or 0) if stopped else None
        left = MOST_FRAMES
        while frame is not None and left:
            if pydevd.in_project_roots_filename_uncached(frame.f_code.co_filename):
                left -= 1
                yield frame
            frame = frame.f_back


def values(rule: str, frames: Sequence[FrameType] | None = None) -> str:
    """Returns the current secret values, as a list in JSON.

    Args:
        rule: the rule of SecretNames.
        frames: the frames to search (default: the user's frames in stopped threads).
    """
    search = _Search(rule)
    frames = list(_users_frames()) if frames is None else frames
    environment: Mapping[str, str] = os.environ
    for variables in (environment, *(f.f_locals for f in frames), *(f.f_globals for f in frames)):
        if id(variables) not in search.seen:
            search.seen.add(id(variables))
            with suppress(RuntimeError):  # changed by another thread
                for name, value in list(variables.items()):
                    search.look(name, value)
    return json.dumps(list(search.values))
