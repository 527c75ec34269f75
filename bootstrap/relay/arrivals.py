"""Keeps the threads that a group has told to stop, until they have: these are late, and are not forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from enum import Enum

from bootstrap.relay.worker import Worker


class Arrival(Enum):
    """Says what became of a thread that is waited for."""

    STOPPED = "stopped"
    ENDED = "ended"
    TAKEN = "taken"  # another debugger has it
    GIVEN_UP = "given up"  # it is not to stop any more


class Arrivals:
    """Has those of one debug session. The thread None stands for whichever of a process stops first."""

    def __init__(self) -> None:
        self._expected: dict[Worker, dict[int | None, asyncio.Future[Arrival]]] = {}

    def expect(self, worker: Worker, thread: int | None) -> asyncio.Future[Arrival]:
        """Returns what tells of the next stop of a thread, or of its end."""
        expected = self._expected.setdefault(worker, {})
        if thread not in expected:
            expected[thread] = asyncio.get_running_loop().create_future()
        return expected[thread]

    def late(self, worker: Worker) -> list[int | None]:
        """Returns the threads of a debuggee that were told to stop, and have not yet."""
        return [*self._expected.get(worker, {})]

    def stopped(self, worker: Worker, thread: int) -> None:
        """Notes that a thread has stopped, and that the editor knows."""
        self._tell(worker, [thread, None], Arrival.STOPPED)

    def ended(self, worker: Worker, thread: int) -> None:
        """Notes that a thread has ended."""
        self._tell(worker, [thread], Arrival.ENDED)

    def gone(self, worker: Worker, arrival: Arrival = Arrival.ENDED) -> None:
        """Notes that a debuggee has ended, is detached from, or is another debugger's."""
        self._tell(worker, self.late(worker), arrival)

    def give_up(self, worker: Worker, thread: int | None) -> None:
        """Notes that a thread is not to stop any more."""
        self._tell(worker, [thread], Arrival.GIVEN_UP)

    def _tell(self, worker: Worker, threads: Iterable[int | None], arrival: Arrival) -> None:
        expected = self._expected.get(worker, {})
        for thread in threads:
            if thread in expected:
                expected.pop(thread).set_result(arrival)
        if not expected:
            self._expected.pop(worker, None)
