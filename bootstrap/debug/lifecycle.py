"""Debuggees from the moment they are found: attached to for an editor, left when it goes, ended."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from bootstrap.debug.client import STOP_IN_USER_CODE
from bootstrap.debug.configuration import Configuration
from bootstrap.debug.dap import Message
from bootstrap.debug.debuggee import Debuggee, Discovery
from bootstrap.debug.editor import CurrentEditor
from bootstrap.debug.files import Files
from bootstrap.debug.threads import Threads
from bootstrap.debug.work import Work
from bootstrap.debug.worker import Asked, NotWanted, Worker, Workers
from bootstrap.errors import AttachFailed, RaysideError

# Seconds between two looks for new debuggees, each of which is one request whatever their number. A
# look that is slow gets more time, so that looking never takes more than a tenth of Ray's dashboard.
LOOK, LEAST_SHARE = 0.2, 9
# Seconds before a debuggee that was left is attached to again: one that is dialled within milliseconds of
# its `disconnect` may never answer (1 of 7 to 80 times, with debugpy 1.8.22; never of 120 after 0.5 s).
SETTLING = 0.5
# Tries to attach to a debuggee that does not answer.
MOST_TRIES = 3
# Looks without a debuggee before it counts as ended, for Ray's tables may lag.
LOOKS_MISSED = 5
# Seconds for debuggees to be left in good order when the relay ends.
CLOSING = 10.0


# How often attaching failed for the same editor, by worker and port.
Tries = Counter[tuple[str, int]]


class Lifecycle:
    """Without an editor nothing is attached, but what is to stay paused, and nobody is asked.

    Attributes:
        keep_paused: whether what is stopped stays so when the editor goes.
    """

    def __init__(
        self,
        workers: Workers,
        discovery: Discovery,
        *,
        configuration: Configuration,
        threads: Threads,
        editor: CurrentEditor,
        work: Work,
        log: Callable[[str], None],
        on_event: Callable[[Worker, Message], None],
    ) -> None:
        self.keep_paused = False
        self._workers, self._discovery, self._configuration = workers, discovery, configuration
        self._threads, self._editor, self._work = threads, editor, work
        self._log, self._on_event = log, on_event
        self._asked = Asked(STOP_IN_USER_CODE)
        self._files = Files()
        self._missed: dict[str, int] = {}
        self._tries = Tries()
        self._leaving: set[asyncio.Future[Any]] = set()
        self._watching: asyncio.Future[Any] | None = None

    # --- for an editor -------------------------------------------------------------------

    def begin(self, asked: Asked, *, keep_paused: bool) -> None:
        """Another editor attaches; what was read or given up for the one before is tried again."""
        self._asked, self.keep_paused = asked, keep_paused
        self._files.clear()
        self._tries = Tries()  # a new one: what is attached to for the one before counts for that one

    def watch(self) -> None:
        """It is configured: it gets what is attached already, and what is found until it goes."""
        for worker in self._workers.attached:  # held, or of the editor before
            worker.told.clear()
            self._work.start(self._adopt(worker))
        if self._watching is None or self._watching.done():
            self._watching = asyncio.ensure_future(self._look())

    def editor_left(self) -> None:
        """It has gone: the cluster goes on, but what is to be kept paused."""
        self._leave([w for w in self._workers.values() if not (self.keep_paused and w.stops)])

    async def close(self) -> None:
        """Leaves all of them; what waits for an answer gets it first."""
        self._leave(self._workers.values())
        if self._leaving:  # earlier ones, too
            await asyncio.wait(self._leaving, timeout=CLOSING)
        if self._watching is not None:
            self._watching.cancel()

    # --- found ---------------------------------------------------------------------------

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        told = False
        while self._editor.editor is not None:
            began = loop.time()
            try:
                found = await self._discovery.debuggees()
            except RaysideError as error:
                if not told:
                    told = True
                    self._editor.say(f"Ray does not answer: {error.message}. What is attached stays so.")
            except Exception as error:
                self._log(f"a defect: {error!r}")  # and no reason to look no more
            else:
                if told:
                    told = False
                    self._editor.say("Ray answers again.")
                self._take(found)
            await asyncio.sleep(max(LOOK, LEAST_SHARE * (loop.time() - began)))

    def _take(self, found: list[Debuggee]) -> None:
        if not self._editor.listens:
            return
        there = {debuggee.worker_id: debuggee for debuggee in found}
        for debuggee in found:
            worker = self._workers.get(debuggee.worker_id)
            if worker is not None:
                worker.described(debuggee)
            elif self._is_wanted(debuggee):
                self._workers[debuggee.worker_id] = new = Worker(debuggee, self._files, self._on_event)
                self._work.start(self._attach(new))
        self._missed = {name: self._missed.get(name, 0) + 1 for name in self._workers if name not in there}
        for name, missed in self._missed.items():
            if missed > LOOKS_MISSED and self._workers[name].ready.is_set():
                self.end(self._workers[name])

    def _is_wanted(self, debuggee: Debuggee) -> bool:
        if self._tries[debuggee.worker_id, debuggee.port] >= MOST_TRIES:
            return False
        # Where nobody knows its job, it is asked itself (`Worker.attach`).
        return not (debuggee.job_id or debuggee.submission_id) or self._asked.is_wanted(debuggee)

    # --- attached ------------------------------------------------------------------------

    async def _attach(self, worker: Worker) -> None:
        tries = self._tries  # of the editor that it is for, which may not be the same at the end
        try:
            await worker.attach(self._asked, self._configuration.put_into)
        except (AttachFailed, NotWanted) as error:
            # Every try may spoil it for whoever debugs it: one is enough for each editor.
            _give_up(tries, worker)
            if isinstance(error, AttachFailed):
                self._editor.say(f"{worker.debuggee.title}: {error.message}")
            self._leave([worker])
        except Exception as error:  # it has ended, or speaks no DAP
            self._log(f"{worker.debuggee.title}: {error}")
            tries[worker.debuggee.worker_id, worker.debuggee.port] += 1
            self._leave([worker])
        else:
            self._attached_to(worker)

    def _attached_to(self, worker: Worker) -> None:
        if worker.left:  # its editor went meanwhile, and the next one is not to see it
            return
        self._log(f"attached to {worker.debuggee.title}")
        worker.ready.set()
        self._threads.show(worker, worker.main_thread)
        self._work.start(self._until_ended(worker))
        if not self._configuration.is_in(worker):
            self._work.start(self._configuration.put_into(worker))
        if self._editor.editor is None and not (self.keep_paused and worker.stops):
            self._leave([worker])

    async def _adopt(self, worker: Worker) -> None:
        await self._configuration.put_into(worker)
        for thread in worker.named:
            self._threads.tell_stop(worker, thread)

    # --- ended, or left ------------------------------------------------------------------

    async def _until_ended(self, worker: Worker) -> None:
        await worker.ended.wait()
        self.end(worker)

    def end(self, worker: Worker) -> None:
        """A debuggee has ended by itself, or says so."""
        if worker.left:
            return
        if not worker.ready.is_set():
            # `_attach` gets the error, and counts it for the editor that it is for; another may have come
            # since. One that is not wanted says it, too, when it is left.
            worker.client.close()
            return
        self._log(f"{worker.debuggee.title} has ended")
        _give_up(self._tries, worker)  # Ray lists it for some more seconds
        self._leave([worker])

    def _leave(self, workers: Iterable[Worker]) -> None:
        """Lets them go on without us; they are gone from the editor's list at once."""
        for worker in [worker for worker in workers if not worker.left]:
            self._threads.left(worker)
            worker.left = True
            worker.ready.set()  # nobody has to wait for that any more
            # Each by itself: one that is frozen must not keep the others from a new editor.
            self._leaving.add(leave := self._work.start(worker.leave()))
            leave.add_done_callback(self._leaving.discard)
            self._work.start(self._settle_down(worker, leave))

    async def _settle_down(self, worker: Worker, leave: asyncio.Future[Any]) -> None:
        """Makes it one that may be attached to again."""
        await asyncio.wait({leave})
        self._threads.forget(worker)
        self._configuration.forget(worker)
        await asyncio.sleep(SETTLING)
        if self._workers.get(worker.debuggee.worker_id) is worker:
            del self._workers[worker.debuggee.worker_id]


def _give_up(tries: Tries, worker: Worker) -> None:
    """Until the next editor."""
    tries[worker.debuggee.worker_id, worker.debuggee.port] = MOST_TRIES
