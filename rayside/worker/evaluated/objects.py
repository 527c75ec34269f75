"""Search for functions, generators, coroutines and classes among all objects of this process."""

from __future__ import annotations

import gc
import itertools
import operator
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from types import AsyncGeneratorType, CodeType, CoroutineType, FunctionType, GeneratorType
from typing import Any

# Attributes with the frame and the code of generators, coroutines and functions.
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
# A number by an object's address. `id` would call audit hooks each time, which are written in Python.
_number = object.__hash__
_PYTHONS_OWN = 1_000  # limit of objects that Python itself freezes at its start: 375 on 3.12


class _Objects:
    """Scan of all objects.

    It runs in Rayside's own threads. Objects with a reference here would be destroyed there, and not where
    the program drops them; and a tuple that is being built from a generator must not be referenced: Python
    then raises SystemError in the program (`_PyTuple_Resize`). So one call, during which no other thread
    runs, scans all objects.

    Generators and coroutines are referenced, though. When a generator is dropped, Python clears its weak
    references and then runs its `finally` (`gen_dealloc`): a weak reference that was made in between would
    point to freed memory.
    """

    def __init__(self) -> None:
        self._functions = frozenset([_number(FunctionType)])
        self._waiting = frozenset(map(_number, FRAMES))
        self._frozen: list[Any] = []
        self._number_frozen = _PYTHONS_OWN

    def all(self) -> list[Any]:
        """Returns weak references to functions; generators and coroutines directly: release may destroy them.

        The scan includes the objects of the garbage collector, and frozen ones. Replicas of Ray Serve freeze
        the objects that they have loaded. These are scanned once, and frozen again: each repetition would
        also freeze newer objects, and garbage.
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
        # All of it happens in the call of `list`, without any Python code, such as a type's hash or
        # `gc.callbacks`: before Python 3.12 any allocation may start a collection. The snapshot is also
        # cleared there, because it contains these iterators, which reference it. Audit hooks are called
        # before the snapshot.
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
    """Yields objects from the only list in `taken`, by the numbers of their types; without Python code."""
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

    The result references them: its release may destroy one, and then runs finalizers.
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
