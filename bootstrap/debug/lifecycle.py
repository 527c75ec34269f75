"""One session's debuggees from the moment they are found: attached to, handed over, left, ended."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Set
from typing import Any

from bootstrap.debug.client import STOP_IN_USER_CODE
from bootstrap.debug.configuration import Configuration
from bootstrap.debug.debuggee import Debuggee
from bootstrap.debug.editor import TAKEN_OVER, CurrentEditor
from bootstrap.debug.files import Files
from bootstrap.debug.threads import Threads
from bootstrap.debug.work import Work
from bootstrap.debug.worker import Configure, Holder, NotWanted, Worker, Workers
from bootstrap.errors import AttachFailed, RaysideError
from bootstrap.plain import line

# Seconds before a debuggee that was left is attached to again: one that is dialled within milliseconds of
# its `disconnect` may never answer (1 of 7 to 80 times, with debugpy 1.8.22; never of 120 after 0.5 s).
SETTLING = 0.5
# Tries to attach to a debuggee that does not answer.
MOST_TRIES = 3
# Looks without a debuggee before it counts as ended, for Ray's tables may lag.
POLLS_MISSED = 5
# Seconds for debuggees to be left in good order when the relay ends.
CLOSING = 10.0
# Characters of Ray's reason for the end of a process.
MOST_OF_A_REASON = 600


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
        holder: Holder,
        *,
        claim: Callable[[Worker], Awaitable[Configure]],
        why_ended: Callable[[Debuggee], Awaitable[str]],
        configuration: Configuration,
        threads: Threads,
        editor: CurrentEditor,
        work: Work,
        log: Callable[[str], None],
    ) -> None:
        self.keep_paused = False
        self._workers, self._holder, self._claim = workers, holder, claim
        self._why_ended = why_ended
        self._configuration = configuration
        self._threads, self._editor, self._work = threads, editor, work
        self._log = log
        self._options: Mapping[str, Any] = STOP_IN_USER_CODE
        self._files = Files()
        self._missed: dict[str, int] = {}
        self._tries = Tries()
        self._detaching: set[asyncio.Future[Any]] = set()

    # --- for an editor -------------------------------------------------------------------

    def begin(self, options: Mapping[str, Any], *, keep_paused: bool) -> None:
        """Another editor attaches; what was read or given up for the one before is tried again.

        `options`: debugpy's `attach` arguments.
        """
        self._options, self.keep_paused = options, keep_paused
        self._files.clear()
        self._tries = Tries()  # a new one: what is attached to for the one before counts for that one

    def watch(self) -> None:
        """It is configured, and gets what is attached already."""
        for worker in self._workers.attached:  # held, or of the editor before
            worker.reported.clear()
            self._work.start(self._adopt(worker))

    def editor_left(self) -> None:
        """It has gone: the cluster goes on, but what is to be kept paused."""
        self._detach([w for w in self._workers.values() if not (self.keep_paused and w.stops)])

    async def close(self) -> None:
        """Leaves all of them; what waits for an answer gets it first."""
        self._detach(self._workers.values())
        if self._detaching:  # earlier ones, too
            await asyncio.wait(self._detaching, timeout=CLOSING)

    # --- found ---------------------------------------------------------------------------

    def may_try(self, debuggee: Debuggee) -> bool:
        return self._tries[debuggee.worker_id, debuggee.port] < MOST_TRIES

    def take(self, debuggee: Debuggee) -> None:
        """Attaches to it, for the editor that is there."""
        self._workers[debuggee.worker_id] = new = Worker(debuggee, self._files, self._holder)
        self._work.start(self._attach(new))

    def miss(self, worker_ids: Set[str]) -> None:
        """`there`: the worker_id of each debuggee that was found; the others may have ended."""
        self._missed = {
            name: self._missed.get(name, 0) + 1 for name in self._workers if name not in worker_ids
        }
        for name, missed in self._missed.items():
            if missed > POLLS_MISSED and self._workers[name].ready.is_set():
                self.end(self._workers[name])

    # --- attached ------------------------------------------------------------------------

    async def _attach(self, worker: Worker) -> None:
        tries = self._tries  # of the editor that it is for, which may not be the same at the end
        try:
            await worker.attach(self._options, self._claim)
        except (AttachFailed, NotWanted) as error:
            # Every try may spoil it for whoever debugs it: one is enough for each editor.
            _give_up(tries, worker)
            worker.holder.refused(worker, error)
        except Exception as error:  # it has ended, or speaks no DAP
            tries[worker.debuggee.worker_id, worker.debuggee.port] += 1
            worker.holder.refused(worker, error)
        else:
            worker.holder.attached_to(worker)

    def refused(self, worker: Worker, error: Exception) -> None:
        """It could not be attached to, or is not wanted."""
        if isinstance(error, AttachFailed):
            self._editor.say(f"{worker.debuggee.title}: {error.message}")
        elif not isinstance(error, NotWanted):
            self._log(f"{worker.debuggee.title}: {error}")
            if not self.may_try(worker.debuggee):
                tries = f"{MOST_TRIES} tries"
                self._editor.say(
                    f"{worker.debuggee.title} can't be attached to, in {tries}: {line(str(error))}"
                )
        self._detach([worker])

    def attached_to(self, worker: Worker) -> None:
        """It takes requests now."""
        if worker.detached:  # its editor went meanwhile, and the next one is not to see it
            return
        self._log(f"attached to {worker.debuggee.title}")
        worker.ready.set()
        self._threads.show(worker, worker.main_thread)
        self._work.start(self._until_ended(worker))
        if not self._configuration.is_in(worker):
            self._work.start(self._configuration.put_into(worker))
        if self._editor.editor is None and not (self.keep_paused and worker.stops):
            self._detach([worker])

    def hand_over(self, worker: Worker, to: Lifecycle) -> None:
        """Makes it another session's, as it stands; this one's editor has none of its rows any more."""
        for thread in worker.stops:
            title = worker.described_at(thread).title
            self._editor.say(f"{title} is stopped in {to.debugger} now, which has asked for its job by name")
        self._threads.remove_rows(worker, TAKEN_OVER)
        self._threads.forget(worker)
        self._configuration.forget(worker)
        del self._workers[worker.debuggee.worker_id]
        to.receive(worker)

    @property
    def debugger(self) -> str:
        """The name of the program that debugs here, for people."""
        return (self._editor.editor.name if self._editor.editor else "") or "another editor"

    def receive(self, worker: Worker) -> None:
        worker.holder, worker.revision = self._holder, -1
        worker.reported.clear()
        self._workers[worker.debuggee.worker_id] = worker
        if worker.ready.is_set():
            self._threads.add_rows(worker)
            self._work.start(self._adopt(worker))

    async def _adopt(self, worker: Worker) -> None:
        await self._configuration.put_into(worker)
        for thread in worker.named:
            self._threads.tell_stop(worker, thread)

    # --- ended, or left ------------------------------------------------------------------

    async def _until_ended(self, worker: Worker) -> None:
        await worker.ended.wait()
        worker.holder.end(worker)

    def end(self, worker: Worker) -> None:
        """A debuggee has ended by itself, or says so."""
        if worker.detached:
            return
        if not worker.ready.is_set():
            # `_attach` gets the error, and counts it for the editor that it is for; another may have come
            # since. One that is not wanted says it, too, when it is left.
            worker.client.close()
            return
        self._log(f"{worker.debuggee.title} has ended")
        if worker.stops and not self._editor.is_empty:
            self._work.start(self._tell_why(worker))
        _give_up(self._tries, worker)  # Ray lists it for some more seconds
        self._detach([worker])

    async def _tell_why(self, worker: Worker) -> None:
        """A task that dies while somebody looks at it has a reason, which only Ray knows."""
        titles = [worker.described_at(thread).title for thread in worker.stops]
        try:
            why = await self._why_ended(worker.debuggee)
        except RaysideError as error:
            why = f"why is not known: {error.message}"
        reason = line(why or "Ray does not say why", MOST_OF_A_REASON)
        self._editor.say(f"{titles[0]} has ended while it was stopped: {reason}")

    def _detach(self, workers: Iterable[Worker]) -> None:
        """Lets them go on without us; they are gone from the editor's list at once."""
        for worker in [worker for worker in workers if not worker.detached]:
            self._threads.remove_rows(worker)
            worker.detached = True
            worker.ready.set()  # nobody has to wait for that any more
            # Each by itself: one that is frozen must not keep the others from a new editor.
            self._detaching.add(detaching := self._work.start(worker.detach()))
            detaching.add_done_callback(self._detaching.discard)
            self._work.start(self._settle_down(worker, detaching))

    async def _settle_down(self, worker: Worker, detaching: asyncio.Future[Any]) -> None:
        """Makes it one that may be attached to again."""
        await asyncio.wait({detaching})
        self._threads.forget(worker)
        self._configuration.forget(worker)
        await asyncio.sleep(SETTLING)
        if self._workers.get(worker.debuggee.worker_id) is worker:
            del self._workers[worker.debuggee.worker_id]


def _give_up(tries: Tries, worker: Worker) -> None:
    """Until the next editor."""
    tries[worker.debuggee.worker_id, worker.debuggee.port] = MOST_TRIES
