"""Tests how functions that breakpoints may be in are found among all objects: nothing is changed by it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from bootstrap.hook.evaluated.entering import _Objects


def living(objects: _Objects) -> list[Any]:
    return [reference() for reference in objects.all()]


def waits() -> Iterator[int]:
    yield 1


@pytest.fixture
def frozen() -> Iterator[None]:
    """Has all that there is frozen, as replicas of Ray Serve do."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("frozen")
def test_what_is_frozen_is_found_and_what_comes_later_is_collected() -> None:
    class Cycle:
        def __init__(self) -> None:
            self.itself = self

    objects = _Objects()
    assert waits in living(objects)
    gone = weakref.ref(Cycle())
    assert waits in living(objects)
    gc.collect()
    assert gone() is None


def test_functions_and_what_waits_are_found_and_not_kept() -> None:
    def function() -> None:
        """Is a function of its own."""

    waiting = waits()
    objects = _Objects()
    references = objects.all()
    living_ids = {id(reference()) for reference in references}
    numbers = {id(function), id(waiting)}
    assert numbers <= living_ids
    gone = weakref.ref(function), weakref.ref(waiting)
    del function, waiting
    assert [reference() for reference in gone] == [None, None]


def test_no_code_of_a_type_runs() -> None:
    class Kind(type):
        def __hash__(cls) -> int:
            raise AssertionError("a type was asked for its hash")

    class Thing(metaclass=Kind):
        pass

    thing = [Thing()]
    assert waits in living(_Objects())
    assert thing
