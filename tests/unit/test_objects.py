"""Tests how functions that breakpoints may be in are found among all objects: nothing is changed by it."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from bootstrap.hook.evaluated.objects import _Objects


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


def test_no_collection_begins_while_everything_is_held() -> None:
    """It would call `gc.callbacks`, and other threads run then (before Python 3.12 any allocation may)."""
    is_half_made, goes_on, results = threading.Event(), threading.Event(), list[object]()

    def elements() -> Iterator[int]:
        yield from range(11)  # more than the tuple has room for at first
        is_half_made.set()
        goes_on.wait(10)
        yield from range(1_000)

    def make() -> None:
        try:
            results.append(len(tuple(elements())))
        except SystemError as error:  # somebody else holds it
            results.append(error)

    def collects(*_: object) -> None:
        goes_on.set()
        time.sleep(0.1)

    kept = [lambda: None for _ in range(10_000)]
    maker = threading.Thread(target=make)
    maker.start()
    assert is_half_made.wait(10)
    gc.collect()
    gc.callbacks.append(collects)
    try:
        assert len(_Objects().all()) > len(kept)
    finally:
        gc.callbacks.remove(collects)
    assert gc.isenabled()
    goes_on.set()
    maker.join(10)
    assert results == [1_011]


def test_a_collector_that_the_program_has_turned_off_stays_so() -> None:
    gc.disable()
    try:
        _Objects().all()
        assert not gc.isenabled()
    finally:
        gc.enable()
