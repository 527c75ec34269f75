"""Works out who belongs to a group now: of each debuggee a session has, what is stopped, or itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from bootstrap.dap.framing import Message
from bootstrap.errors import DebuggerGone, RequestFailed
from bootstrap.hook.evaluated.scope import OF_PROCESS
from bootstrap.relay import answers
from bootstrap.relay.connection import SOON
from bootstrap.relay.debuggee import Debuggee
from bootstrap.relay.rules import LARGEST, Number, Text, record
from bootstrap.relay.selector import OF_RELAY, Selector
from bootstrap.relay.sent import REACHED, SCOPE
from bootstrap.relay.work import Work
from bootstrap.relay.worker import Worker, Workers

# The most characters of an attribute, and of a debuggee's answer.
_LONGEST, _LONGEST_ANSWER = 500, 10_000
_RULE = record(
    *("actor", "actor_id", "actor_name", "node_id"),
    **dict.fromkeys(OF_PROCESS, Text(_LONGEST)) | {"rank": Number(-LARGEST)},
)


@dataclass(frozen=True)
class Member:
    """Is a thread that is stopped, or was told to stop, or a process of which no thread is (None).

    Attributes:
        row: who it is, as `answers.row` has it, with its `rank`.
    """

    worker: Worker
    thread: int | None
    row: Message


class Members:
    """Works them out for one debug session, whose debuggees `workers` are."""

    def __init__(self, workers: Workers, work: Work) -> None:
        self._workers, self._work = workers, work
        # What each process said last: who does not answer now is still known by it.
        self._known: WeakKeyDictionary[Worker, Message] = WeakKeyDictionary()

    async def learn(self, selectors: Iterable[Selector]) -> None:
        """Asks all processes for what they alone know, if a selector needs that."""
        workers = self._workers.attached
        if workers and any(selector.asks for selector in selectors):
            await asyncio.wait([self._work.start(self._ask(worker)) for worker in workers], timeout=SOON)

    def of(self, selector: Selector) -> tuple[list[Member], list[Member]]:
        """Returns the members, and those of whom nobody can say, for they have never answered."""
        workers = self._workers.attached
        members, unknown = [], []
        for worker in workers:
            known = self._known.get(worker)
            threads: list[int | None] = [*sorted(worker.stops)] or [None]
            for thread in threads:
                member = self.member(worker, thread)
                if selector.asks and known is None:
                    unknown.append(member)
                elif selector.takes({**(known or {}), **_of_relay(_at(worker, thread))}):
                    members.append(member)
        return members, unknown

    def member(self, worker: Worker, thread: int | None) -> Member:
        """Returns a thread of a debuggee, or all of that (None), as a member."""
        name = "MainThread" if thread == worker.main_thread else ""
        rank = self._known.get(worker, {}).get("rank")
        return Member(worker, thread, {**answers.row(_at(worker, thread), name), "rank": rank})

    async def _ask(self, worker: Worker) -> None:
        connection = worker.connection
        try:
            await connection.send_once(REACHED)
            await connection.send_once(SCOPE)
            answer = answers.taken(
                await connection.literal(SCOPE.call("of_process"), timeout=SOON), _RULE, _LONGEST_ANSWER
            )
        except (RequestFailed, DebuggerGone):
            return
        if not isinstance(answer, str):
            self._known[worker] = answer


def _at(worker: Worker, thread: int | None) -> Debuggee:
    return worker.debuggee if thread is None or thread not in worker.stops else worker.described_at(thread)


def _of_relay(debuggee: Debuggee) -> Mapping[str, object]:
    attributes = (
        *(debuggee.task, debuggee.node_ip, debuggee.job_id, debuggee.submission_id),
        *(debuggee.shown_id, debuggee.pid),
    )
    return dict(zip(OF_RELAY, attributes, strict=True))
