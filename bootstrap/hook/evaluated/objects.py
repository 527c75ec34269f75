"""Finds the functions, generators and coroutines of this process, among all its objects."""

from __future__ import annotations

import gc
import itertools
import operator
import weakref
from collections.abc import Iterator
from types import AsyncGeneratorType, CoroutineType, FunctionType, GeneratorType
from typing import Any

# An object's own number, by its address. `id` would tell audit hooks of each, which are written in Python.
_number = object.__hash__
_PYTHONS_OWN = 1_000  # objects that Python itself has frozen when it starts: 375 on 3.12


class _Objects:
    """Finds them by weak references.

    It runs in threads of ours. What it held would be destroyed there, and not where the program lets it go;
    and no tuple may be held that is being made of a generator: Python raises SystemError then, in the
    program (`_PyTuple_Resize`). So all objects are gone through in one call, in which no other thread runs.
    """

    def __init__(self) -> None:
        self._kinds = frozenset(
            map(_number, (FunctionType, GeneratorType, CoroutineType, AsyncGeneratorType))
        )
        self._frozen: list[weakref.ref[Any]] = []
        self._number_frozen = _PYTHONS_OWN

    def all(self) -> list[weakref.ref[Any]]:
        """Returns those that the garbage collector knows, with those that a program has frozen.

        Replicas of Ray Serve freeze what they have loaded. That is looked at once, and frozen again: each
        time what has come since would be frozen, too, garbage as well.
        """
        number = gc.get_freeze_count()
        if number > self._number_frozen:
            gc.unfreeze()
            try:
                self._frozen = self._known()
            finally:
                gc.freeze()
            self._number_frozen = gc.get_freeze_count()
            return self._frozen
        self._number_frozen = max(min(number, self._number_frozen), _PYTHONS_OWN)
        return [*self._frozen, *self._known()]

    def _known(self) -> list[weakref.ref[Any]]:
        # All of it happens in the call of `list`, and nothing that is written in Python: a type's hash might
        # be, and `gc.callbacks` are: before Python 3.12 any allocation may start a collection. The snapshot
        # is emptied there, too: these very iterators are in it, and have it.
        taken: list[list[Any]] = []
        collects: list[bool] = []
        once = [()]
        before = itertools.chain(
            map(collects.append, itertools.starmap(gc.isenabled, once)), itertools.starmap(gc.disable, once)
        )
        take = map(taken.append, map(gc.get_objects, (None,)))
        references = map(
            weakref.ref,
            itertools.compress(
                itertools.chain.from_iterable(filter(None, itertools.chain(take, taken))),
                map(self._kinds.__contains__, map(_number, map(type, itertools.chain.from_iterable(taken)))),
            ),
        )
        clear = map(operator.methodcaller("clear"), taken)
        after = itertools.starmap(gc.enable, itertools.compress(once, collects))
        try:
            return list(
                itertools.chain(filter(None, before), references, filter(None, itertools.chain(clear, after)))
            )
        except MemoryError:
            taken.clear()
            if any(collects):
                gc.enable()
            raise


_objects = _Objects()


def references() -> list[weakref.ref[Any]]:
    """Returns weak references to all functions, generators and coroutines."""
    return _objects.all()


def functions() -> Iterator[FunctionType]:
    """Returns all functions, one after the other."""
    for reference in references():
        each = reference()
        if type(each) is FunctionType:
            yield each
