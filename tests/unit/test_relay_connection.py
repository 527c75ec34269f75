"""Tests how the relay has its modules in a debuggee, once for each connection, and for how long it waits."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from bootstrap.dap.channel import REQUEST_TIMEOUT
from bootstrap.dap.framing import Message
from bootstrap.errors import RequestFailed
from bootstrap.relay.connection import GRACE, PATIENCE, SOON, Connection
from bootstrap.relay.debuggee import Debuggee
from bootstrap.relay.lifecycle import BESIDE
from bootstrap.relay.sent import REDACTION, SECRET_VALUES, Sent
from tests.played import played

NAMES = {REDACTION: "_rayside_redaction", SECRET_VALUES: "_rayside_secret_values"}


class Debugged(Connection):
    """Evaluates here, once the test lets it; what `refuses` has a part of fails, and is evaluated later."""

    def __init__(self) -> None:
        super().__init__(Debuggee("w1", "127.0.0.1", 1, 1, "127.0.0.1", "01000000"), lambda event: None)
        self.expressions: list[str] = []
        self.late: list[str] = []
        self.answers = asyncio.Event()
        self.refuses = "nothing of this"

    async def run(self, expression: str, timeout: float, frame: int | None = None) -> Message:
        self.expressions.append(expression)
        await self.answers.wait()
        if self.refuses in expression:
            self.late.append(expression)
            raise RequestFailed("too late", hint="Try again.")
        return {"result": repr(eval(expression))}

    def sent(self, module: Sent) -> int:
        """Returns how many requests had that module."""
        return sum(module.for_connection(self._name) in expression for expression in self.expressions)


@pytest.fixture(autouse=True)
def without_modules() -> Iterator[None]:
    before = {name: sys.modules.pop(name) for name in NAMES.values() if name in sys.modules}
    yield
    for name in NAMES.values():
        sys.modules.pop(name, None)
    sys.modules.update(before)


def play(story: Callable[[Debugged], Coroutine[Any, Any, None]]) -> None:
    async def all_of_it() -> None:
        await story(Debugged())

    asyncio.run(asyncio.wait_for(all_of_it(), 20))


@played(play)
async def test_what_an_expression_needs_goes_with_it_and_only_once(debugged: Debugged) -> None:
    debugged.answers.set()
    for _ in range(2):
        assert await debugged.literal("1 + 1", modules=(REDACTION,)) == 2
    assert await debugged.literal("'x'", 7, modules=(REDACTION, SECRET_VALUES)) == "x"
    await debugged.send_once(REDACTION, SECRET_VALUES)
    assert len(debugged.expressions) == 3
    assert [debugged.sent(module) for module in NAMES] == [1, 1]
    assert all(name in sys.modules for name in NAMES.values())


@played(play)
async def test_who_needs_a_module_that_is_being_sent_waits_for_it_and_an_expression_does_not(
    debugged: Debugged,
) -> None:
    sending = [asyncio.ensure_future(debugged.send_once(REDACTION)) for _ in range(2)]
    asking = asyncio.ensure_future(debugged.literal("2", 7, modules=(REDACTION, SECRET_VALUES)))
    await asyncio.sleep(0.05)
    assert len(debugged.expressions) == 2
    debugged.answers.set()
    await asyncio.gather(*sending)
    assert await asking == 2
    assert [debugged.sent(module) for module in NAMES] == [2, 1]


@played(play)
async def test_what_comes_late_does_not_make_a_module_anew_that_is_there(debugged: Debugged) -> None:
    """A thread that is busy evaluates after the relay has given up; by then the module has breakpoints."""
    debugged.answers.set()
    debugged.refuses = "'busy'"
    assert await debugged.literal("'busy'", 7, modules=(REDACTION,)) is None
    await debugged.send_once(REDACTION)
    module = sys.modules["_rayside_redaction"]
    (late,) = debugged.late
    eval(late)
    assert sys.modules["_rayside_redaction"] is module


@played(play)
async def test_each_connection_has_them_anew(debugged: Debugged) -> None:
    debugged.answers.set()
    await debugged.send_once(REDACTION)
    module = sys.modules["_rayside_redaction"]
    other = Debugged()
    other.answers.set()
    await other.send_once(REDACTION)
    assert sys.modules["_rayside_redaction"] is not module


@played(play)
async def test_a_debuggee_that_refuses_a_module_is_an_error_and_the_next_tries_again(
    debugged: Debugged,
) -> None:
    debugged.answers.set()
    debugged.refuses = REDACTION.for_connection(debugged._name)
    with pytest.raises(RequestFailed):
        await debugged.send_once(REDACTION)
    debugged.refuses = "nothing of this"
    await debugged.send_once(REDACTION)
    assert debugged.sent(REDACTION) == 2


def test_who_asks_the_relay_waits_longer_than_the_relay_for_a_debuggee_that_resumes() -> None:
    evaluations_end, breakpoints_are_set = GRACE + 2 * SOON, SOON
    assert BESIDE + evaluations_end + breakpoints_are_set + PATIENCE < REQUEST_TIMEOUT
