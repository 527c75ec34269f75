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

# Seconds that an editor waits for debuggees' answers; what comes later is told by events.
FAN_OUT = 0.7


class BackgroundTasks:
    """Keeps everything that is under way. An error other than a debuggee's is a defect, and is logged."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._under_way: set[asyncio.Future[Any]] = set()

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Future[Any]:
        future = asyncio.ensure_future(work)
        self._under_way.add(future)
        future.add_done_callback(self._done)
        return future

    async def side_by_side(self, work: list[Coroutine[Any, Any, Any]]) -> None:
        """Starts all of it, and waits for at most FAN_OUT seconds; what takes longer runs on."""
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


# After it is made, so many times its duration passes before the next one is made. An editor asks for
# all threads after each stop: where a thousand stop, they are listed now and then, and not a thousand times
# (docs/adr/0018-threads-are-answered-together.md).
LEAST_SHARE = 4
# But not more than so many seconds: a process that does not answer must not have all wait.
LONGEST = 5.0


_Made = TypeVar("_Made")


class Coalesced(Generic[_Made]):
    """Keeps what `make` returns, which is so as of now."""

    def __init__(self, make: Callable[[], Awaitable[_Made]]) -> None:
        self._make = make
        self._made: tuple[float, _Made] | None = None  # since when it is so, in the loop's time
        self._not_before = 0.0  # in the loop's time
        self._making = asyncio.Lock()

    async def since(self, asked: float) -> _Made:
        """Returns what is so as of no earlier moment of the loop's time than `asked`."""
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


# Seconds for Ray to list all debuggees, for each of them to answer, and for all of them together.
LOOKING, ANSWERING, IN_ALL = 5.0, 5.0, 12.0
Answer = Message | str  # what a debuggee has answered, or why there is nothing

SILENT = f"it did not answer within {ANSWERING:g} s; it may be in code that keeps Python's lock"
GONE = "it has just ended, or a debugger has just left it"
STRANGE = "its answer is none that the relay knows"
LACKS = "it can't import Rayside's package of this version"
LATE = f"there was no time left for it within {IN_ALL:g} s"

_Key = TypeVar("_Key")
_Answer = TypeVar("_Answer")


def taken(text: object, rule: Rule, longest: int) -> Answer:
    """Returns a debuggee's answer, which is JSON of at most `longest` characters, as the rule takes it."""
    if not isinstance(text, str) or len(text) > longest:
        return STRANGE
    try:
        answer: Message = rule.take(json.loads(text), "")
    except (ValueError, RecursionError):  # NotDap is one
        return STRANGE
    return answer


# The most characters of a debuggee's stacks (thread_stacks.py there sends up to 8,000 frames).
_LONGEST_STACKS = 2_000_000


async def read_stacks(worker: Worker, rule: Rule, timeout: float) -> Answer:
    """Returns what a debuggee says within so many seconds, as `stacks_rule` takes it. Raises DebuggerGone."""
    if not worker.connection.has_package:
        return LACKS
    began = time.monotonic()
    text = await worker.connection.ask(timeout, stacks)
    if text is None and time.monotonic() - began >= timeout:
        return SILENT
    return taken(text, rule, _LONGEST_STACKS)


def row(debuggee: Debuggee, thread: str) -> Message:
    """Returns who it is that has answered, or has not; `thread` is its thread's name, empty if unknown."""
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
    """Waits for all who are asked, for at most IN_ALL seconds; whoever is later is told as LATE."""
    if asked:
        await asyncio.wait(asked, timeout=IN_ALL)
    return [(key, asking.result() if asking.done() else LATE) for asking, key in asked.items()]


# Stops that are looked at at once, and requests of the editor from which on a stop waits for an answer.
_AT_ONCE, _MOST_ASKED = 4, 4
# Seconds that one stop holds up others: for the editor's answers, and again for its own debuggee, which may
# be frozen.
_HOLDING_UP = 0.05


class Pace:
    """Tells an editor of many stops no faster than the relay answers what it asks about them.

    An editor asks three or more things at each stop. Where a thousand tasks stop within a second, each of its
    requests would wait behind the stops of all others, and behind what was asked about those.
    """

    def __init__(self, editor: CurrentEditor) -> None:
        self._editor = editor
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def keep(self, look_and_tell: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Runs what a stop needs until the editor is told of it. Raises what that raises."""
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


# Open files are a connection to each debuggee, and room. Many systems start programs with only 1,024,
# and let them have more.
_FILES = 65_536


def allow_many_files() -> None:
    """Lets this process connect to each of thousands of debuggees, as far as the system allows."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _FILES if most == resource.RLIM_INFINITY else min(_FILES, most)
    if allowed != resource.RLIM_INFINITY and allowed < limit:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))
