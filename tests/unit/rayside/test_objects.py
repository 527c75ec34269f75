"""Tests how functions that breakpoints may be in are found among all objects: nothing is changed by it."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from bootstrap.settings import ROOT
from rayside.worker.evaluated.objects import _Objects, held


def living(objects: _Objects) -> list[Any]:
    return [each() if isinstance(each, weakref.ref) else each for each in objects.all()]


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


def test_functions_and_what_waits_are_found_and_functions_are_not_kept() -> None:
    def function() -> None:
        """A function of its own."""

    waiting = waits()
    objects = _Objects()
    found = objects.all()
    assert waiting in found
    assert any(isinstance(each, weakref.ref) and each() is function for each in found)
    gone = weakref.ref(function), weakref.ref(waiting)
    del function, waiting
    assert gone[0]() is None
    found.clear()
    assert gone[1]() is None


def test_what_is_chosen_is_held() -> None:
    waiting = waits()
    assert [*map(id, held(lambda code: code is waits.__code__))].count(id(waits)) == 1
    assert waiting in held(lambda code: code is waits.__code__)


# A generator that is being let go: whoever has it then keeps it.
ENDING = """
import gc, sys, threading
sys.path.insert(0, sys.argv[1])
from rayside.worker.evaluated.objects import _Objects
ends, goes_on = threading.Event(), threading.Event()

def generator():
    try:
        yield 1
    finally:
        ends.set()
        goes_on.wait()

def lets_go():
    waiting = generator()
    next(waiting)

thread = threading.Thread(target=lets_go)
thread.start()
ends.wait()
found = [each for each in _Objects().all() if "generator object generator" in repr(each)]
goes_on.set()
thread.join()
junk = [bytes([65]) * size for size in range(50, 400, 8) for _ in range(300)]
print(len(found), [each.gi_frame for each in found])
del found
gc.collect()
print("goes on")
"""
# A program that forbids it.
FORBIDS = """
import gc, sys
sys.path.insert(0, sys.argv[1])
from rayside.worker.evaluated.objects import _Objects

def audit(event, arguments):
    if event == "gc.get_objects":
        print(gc.isenabled())
        raise RuntimeError("forbidden")

sys.addaudithook(audit)
try:
    _Objects().all()
except RuntimeError as error:
    print(error, gc.isenabled())
"""


@pytest.mark.parametrize(
    ("program", "output"), [(ENDING, "1 [None]\ngoes on\n"), (FORBIDS, "True\nforbidden True\n")]
)
def test_a_program_is_as_without_us(program: str, output: str) -> None:
    command = [sys.executable, "-c", program, str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == (output, 0), done.stderr


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
