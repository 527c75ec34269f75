"""Finds the functions, generators, coroutines and classes of this process, among all its objects."""

from __future__ import annotations

import gc
import itertools
import operator
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from types import AsyncGeneratorType, CodeType, CoroutineType, FunctionType, GeneratorType
from typing import Any

# The attributes that have the frame and the code of what waits.
FRAMES: dict[type, str] = {
    GeneratorType: "gi_frame",
    CoroutineType: "cr_frame",
    AsyncGeneratorType: "ag_frame",
}
_CODES: dict[type, str] = {
    GeneratorType: "gi_code",
    CoroutineType: "cr_code",
    AsyncGeneratorType: "ag_code",
    FunctionType: "__code__",
}
# An object's own number, by its address. `id` would tell audit hooks of each, which are written in Python.
_number = object.__hash__
_PYTHONS_OWN = 1_000  # objects that Python itself has frozen when it starts: 375 on 3.12


class _Objects:
    """Finds them.

    It runs in threads of ours. What it held would be destroyed there, and not where the program lets it go;
    and no tuple may be held that is being made of a generator: Python raises SystemError then, in the
    program (`_PyTuple_Resize`). So all objects are gone through in one call, in which no other thread runs.

    What waits is held, though. When a generator is let go, Python clears the weak references to it and then
    runs its `finally` (`gen_dealloc`): one that was made meanwhile would lead to freed memory.
    """

    def __init__(self) -> None:
        self._functions = frozenset([_number(FunctionType)])
        self._waiting = frozenset(map(_number, FRAMES))
        self._frozen: list[Any] = []
        self._number_frozen = _PYTHONS_OWN

    def all(self) -> list[Any]:
        """Returns weak references to the functions, and what waits; who lets the latter go may destroy it.

        They are those that the garbage collector knows, with those that a program has frozen. Replicas of Ray
        Serve freeze what they have loaded. That is looked at once, and frozen again: each time what has come
        since would be frozen, too, garbage as well.
        """
        number = gc.get_freeze_count()
        if number > self._number_frozen:
            gc.unfreeze()
            try:
                self._frozen = self._known()
            finally:
                gc.freeze()
            self._number_frozen = gc.get_freeze_count()
            return [*self._frozen]
        self._number_frozen = max(min(number, self._number_frozen), _PYTHONS_OWN)
        self._frozen = [each for each in self._frozen if not _has_ended(each)]
        return [*self._frozen, *self._known()]

    def _known(self) -> list[Any]:
        # All of it happens in the call of `list`, and nothing that is written in Python: a type's hash might
        # be, and `gc.callbacks` are: before Python 3.12 any allocation may start a collection. The snapshot
        # is emptied there, too: these very iterators are in it, and have it. Audit hooks are told before it
        # is taken.
        taken: list[list[Any]] = []
        collects: list[bool] = []
        once: list[tuple[()]] = [()]
        before = itertools.chain(
            map(taken.append, map(gc.get_objects, (None,))),
            map(collects.append, itertools.starmap(gc.isenabled, once)),
            itertools.starmap(gc.disable, once),
        )
        after = itertools.chain(
            map(operator.methodcaller("clear"), taken),
            itertools.starmap(gc.enable, itertools.compress(once, collects)),
        )
        nothing = partial(filter, None)
        functions = map(weakref.ref, _chosen(taken, self._functions))
        try:
            return list(
                itertools.chain(nothing(before), functions, _chosen(taken, self._waiting), nothing(after))
            )
        except BaseException:
            taken.clear()
            if any(collects):
                gc.enable()
            raise


def _chosen(taken: list[list[Any]], numbers: frozenset[int]) -> Iterator[Any]:
    """Yields what is in the only list of `taken` and of a type with such a number; it is no Python code."""
    types = map(type, itertools.chain.from_iterable(taken))
    return itertools.compress(
        itertools.chain.from_iterable(taken), map(numbers.__contains__, map(_number, types))
    )


def _has_ended(each: object) -> bool:
    if isinstance(each, weakref.ref):
        return each() is None
    return getattr(each, FRAMES[type(each)]) is None


_objects = _Objects()


def held(chosen: Callable[[CodeType], bool]) -> list[Any]:
    """Returns the functions, generators and coroutines whose code is chosen.

    They are held: to let one go may destroy it, and runs its finalizers then.
    """
    found = _objects.all()
    result = []
    while found:
        each = found.pop()
        each = each() if isinstance(each, weakref.ref) else each
        if each is not None and chosen(getattr(each, _CODES[type(each)])):
            result.append(each)
    return result


def classes() -> Iterator[type]:
    """Yields all classes of this process, each once."""
    left, seen = [object], set[int]()
    while left:
        each = left.pop()
        yield each
        new = [found for found in type.__subclasses__(each) if id(found) not in seen]
        seen.update(map(id, new))
        left += new
