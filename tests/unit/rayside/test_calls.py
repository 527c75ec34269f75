"""Tests calls that can be made again, without Ray."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from rayside.worker import call_wrappers, calls
from rayside.worker.calls import Call

_UNNAMED = b"__RAY_DUMMY__"


@pytest.fixture(autouse=True)
def nothing_noted() -> None:
    calls._inputs.clear()
    calls._shown.clear()


def function(*values: object, **named: object) -> Any:
    raise ValueError


def test_each_of_two_calls_with_the_same_values_has_its_own_inputs() -> None:
    one, two = object(), object()
    calls.note_inputs(["first", one, "second", two], "of the first call", [])
    calls.note_inputs(["second", one, "first", two], "of the second call", [])
    calls.note_inputs([_UNNAMED, one, _UNNAMED, two], "of the third call", [])
    made = [
        Call(function, (), {"first": one, "second": two}),
        Call(function, (), {"second": one, "first": two}),
        Call(function, (one, two), {}),
    ]
    assert [call.serialized for call in made] == [
        (f"of the {number} call", []) for number in ("first", "second", "third")
    ]
    assert not calls._inputs


def test_what_get_returns_is_no_input() -> None:
    calls.note_inputs([b"name", object()], "pinned", [])
    calls.note_inputs(["name", object(), 3, object()], "pinned", [])
    assert not calls._inputs


def test_a_plain_method_of_an_async_actor_does_not_halt_its_other_calls() -> None:
    async def called() -> None:
        call_wrappers._followed(function)()

    with pytest.raises(ValueError):
        asyncio.run(called())
    assert not calls._shown, "Ray's own post-mortem has it"


def test_only_an_exception_that_ends_the_call_has_been_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = []

    def stand_still(error: BaseException, *_: object) -> None:
        attempts.append(error)
        if len(attempts) == 1:
            calls._failed[threading.get_ident()].asked(0, from_start=False)

    monkeypatch.setattr(calls, "_stand_still", stand_still)
    with pytest.raises(ValueError):
        call_wrappers._followed(function)()
    first, last = attempts
    assert not calls.is_shown(first) and calls.is_shown(last)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_generator_goes_on_behind_what_its_last_run_has_yielded(
    is_async: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from_start = [False, True, False]

    def stand_still(error: BaseException, *_: object) -> None:
        calls._failed[threading.get_ident()].asked(0, from_start=from_start.pop(0))

    def numbers() -> Iterator[int]:
        yield from (1, 2)
        if from_start:
            raise ValueError
        yield 3

    async def later() -> AsyncIterator[int]:
        for number in numbers():
            yield number

    async def all_of_later() -> list[int]:
        return [number async for number in call_wrappers._followed(later)()]

    monkeypatch.setattr(calls, "_stand_still", stand_still)
    yielded = asyncio.run(all_of_later()) if is_async else [*call_wrappers._followed(numbers)()]
    assert yielded == [1, 2, 1, 2, 3]


def test_inputs_of_a_call_that_does_not_begin_are_not_kept() -> None:
    class RayError(Exception):
        pass

    class RayTaskError(RayError):
        pass

    calls.note_inputs([_UNNAMED, object(), _UNNAMED, RayTaskError()], "pinned", [])
    assert not calls._inputs
    calls.note_inputs([_UNNAMED, ValueError()], "an argument like any other", [])
    assert calls._inputs
