"""Fan-out to many debuggees: background tasks, coalesced requests, bounded waits, paced stops."""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Generic, TypeVar

from rayside.dap.framing import Message
from rayside.errors import DebuggerGone, RequestFailed
from rayside.relay.debuggee import Debuggee
from rayside.relay.editor import CurrentEditor
from rayside.relay.schemas import Rule
from rayside.relay.worker import Worker
from rayside.worker.evaluated.thread_stacks import stacks

# Timeout in seconds of an editor's request to many debuggees; later answers are reported by events.
FAN_OUT = 0.7


class BackgroundTasks:
    """Set of running background tasks. An error other than a debuggee's is a defect, and is logged."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._under_way: set[asyncio.Future[Any]] = set()

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Future[Any]:
        future = asyncio.ensure_future(work)
        self._under_way.add(future)
        future.add_done_callback(self._done)
        return future

    async def side_by_side(self, work: list[Coroutine[Any, Any, Any]]) -> None:
        """Starts all coroutines, and waits for at most FAN_OUT seconds; slower ones continue."""
        if work:
            await asyncio.wait([self.start(each) for each in work], timeout=FAN_OUT)

    def cancel(self) -> None:
        for future in self._under_way:
            future.cancel()

    def _done(self, future: asyncio.Future[Any]) -> None:
        self._under_way.discard(future)
        if future.cancelled():
            return
        error = future.exception()
        if error is not None and not isinstance(error, RequestFailed | DebuggerGone):
            self._log(f"a defect: {error!r}")


# Pause after a value is made, as a multiple of the time that it took. An editor requests all threads after
# each stop: if a thousand tasks stop, the threads are listed a few times, and not a thousand times
# (docs/adr/0018-threads-are-answered-together.md).
LEAST_SHARE = 4
# Limit of that pause in seconds: a process that does not answer must not delay all requests.
LONGEST = 5.0


_Made = TypeVar("_Made")


class Coalesced(Generic[_Made]):
    """Coalesces concurrent requests for a value that `make` computes from the current state."""

    def __init__(self, make: Callable[[], Awaitable[_Made]]) -> None:
        self._make = make
        self._made: tuple[float, _Made] | None = None  # when `make` began, in the loop's time; the value
        self._not_before = 0.0  # in the loop's time
        self._making = asyncio.Lock()

    async def since(self, asked: float) -> _Made:
        """Returns a value that `make` began to compute at the loop's time `asked` or later."""
        loop = asyncio.get_running_loop()
        async with self._making:
            if self._made is None or self._made[0] < asked:
                if (pause := self._not_before - loop.time()) > 0:
                    await asyncio.sleep(pause)
                began = loop.time()
                self._made = began, await self._make()
                ended = loop.time()
                self._not_before = ended + min(LEAST_SHARE * (ended - began), LONGEST)
            return self._made[1]


# Timeouts in seconds: of Ray's list of debuggees, of each debuggee, and of all debuggees together.
LOOKING, ANSWERING, IN_ALL = 5.0, 5.0, 12.0
Answer = Message | str  # a debuggee's answer, or why there is none

SILENT = f"it did not answer within {ANSWERING:g} s; it may be in code that keeps Python's lock"
GONE = "it has just ended, or a debugger has just left it"
STRANGE = "its answer is none that the relay knows"
LACKS = "it can't import Rayside's package of this version"
LATE = f"there was no time left for it within {IN_ALL:g} s"

_Key = TypeVar("_Key")
_Answer = TypeVar("_Answer")


def taken(text: object, rule: Rule, longest: int) -> Answer:
    """Parses a debuggee's answer, JSON of at most `longest` characters, with a schema."""
    if not isinstance(text, str) or len(text) > longest:
        return STRANGE
    try:
        answer: Message = rule.take(json.loads(text), "")
    except (ValueError, RecursionError):  # NotDap is one
        return STRANGE
    return answer


# Limit in characters of a debuggee's stacks (its thread_stacks.py sends up to 8,000 frames).
_LONGEST_STACKS = 2_000_000


async def read_stacks(worker: Worker, rule: Rule, timeout: float) -> Answer:
    """Reads a debuggee's stacks, parsed with `rule`; `timeout` is in seconds. Raises DebuggerGone."""
    if not worker.connection.has_package:
        return LACKS
    began = time.monotonic()
    text = await worker.connection.ask(timeout, stacks)
    if text is None and time.monotonic() - began >= timeout:
        return SILENT
    return taken(text, rule, _LONGEST_STACKS)


def row(debuggee: Debuggee, thread: str) -> Message:
    """Returns a debuggee's row for an answer; `thread` is a thread's name, empty if unknown."""
    return {
        "task": debuggee.task,
        "pid": debuggee.pid,
        "node": debuggee.node_ip,
        "thread": thread,
        "workerId": debuggee.shown_id,
        "submissionId": debuggee.submission_id,
    }


async def together(
    asked: Mapping[asyncio.Future[_Answer], _Key],
) -> list[tuple[_Key, _Answer | str]]:
    """Waits for all answers, for at most IN_ALL seconds; later ones are returned as LATE."""
    if asked:
        await asyncio.wait(asked, timeout=IN_ALL)
    return [(key, asking.result() if asking.done() else LATE) for asking, key in asked.items()]


# Limits: stops that are examined at the same time, and pending requests of the editor before a stop waits.
_AT_ONCE, _MOST_ASKED = 4, 4
# Seconds for which one stop delays others: for the editor's requests, and again for its own debuggee, which
# may be frozen.
_HOLDING_UP = 0.05


class Pace:
    """Reports stops to an editor no faster than the relay answers its requests about them.

    An editor sends three or more requests at each stop. If a thousand tasks stop within a second, each of
    these would wait for the stops of all other tasks, and for the requests about those.
    """

    def __init__(self, editor: CurrentEditor) -> None:
        self._editor = editor
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def keep(self, look_and_tell: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Runs a coroutine that examines and reports a stop. Raises its exceptions."""
        async with self._turns:
            if self._editor.editor is not None:
                await self._editor.editor.answered(_MOST_ASKED, _HOLDING_UP)
            telling = asyncio.ensure_future(look_and_tell())
            try:
                await asyncio.wait({telling}, timeout=_HOLDING_UP)
            except asyncio.CancelledError:
                telling.cancel()
                raise
        await telling


# Open files: one connection to each debuggee, and reserve. Many systems start programs with a limit of only
# 1,024, which programs may raise.
_FILES = 65_536


def allow_many_files() -> None:
    """Raises the limit of open files for thousands of connections, as far as the system allows."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _FILES if most == resource.RLIM_INFINITY else min(_FILES, most)
    if allowed != resource.RLIM_INFINITY and allowed < limit:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))
