"""Lifecycle of a session's debuggees: found, attached, handed over, detached, ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Set
from typing import Any

from rayside.dap.additions import TAKEN_OVER
from rayside.dap.client import STOP_IN_USER_CODE, AlreadyDebugged
from rayside.dap.framing import Message
from rayside.errors import AttachFailed, RaysideError
from rayside.plain import line
from rayside.relay.config import Masking
from rayside.relay.configuration import Configuration
from rayside.relay.connection import SOON
from rayside.relay.debuggee import MOST_TRIES, AttachTries, Debuggee, child_of, let_child_go
from rayside.relay.editor import CurrentEditor
from rayside.relay.fan_out import BackgroundTasks
from rayside.relay.source_files import Files
from rayside.relay.threads import Threads
from rayside.relay.worker import Claims, Holder, NotWanted, Worker, Workers
from rayside.worker.children import MOST as MOST_CHILDREN
from rayside.worker.evaluated import PROTOCOL

# Seconds before a debuggee is attached to again after it was detached from: one that is dialled within
# milliseconds of its `disconnect` may never answer (1 of 7 to 80 times, with debugpy 1.8.22; never of 120
# after 0.5 s). On a machine with much to do it takes longer, as attaching did, up to the longest.
SETTLING, LONGEST_SETTLING = 0.5, 10.0
# Polls that miss a debuggee before it counts as ended, for Ray's tables may lag.
POLLS_MISSED = 5
# Seconds to detach from debuggees in good order when the relay ends.
CLOSING = 10.0
# Seconds for which what an editor resumes waits for what it has found beside that.
BESIDE = 2.0
# The most characters of Ray's reason for the end of a process.
MOST_OF_A_REASON = 600


def settling(attaching_took: float) -> float:
    """Returns how many seconds a debuggee is left alone after it was left, by those that attaching took."""
    return min(max(SETTLING, attaching_took), LONGEST_SETTLING)


class Lifecycle:
    """Attaches to debuggees and detaches; without an editor only what is to stay paused is attached.

    Attributes:
        keep_paused: whether what is stopped stays so when the editor goes.
    """

    def __init__(
        self,
        workers: Workers,
        holder: Holder,
        *,
        claims: Claims,
        why_ended: Callable[[Debuggee], Awaitable[str]],
        configuration: Configuration,
        threads: Threads,
        editor: CurrentEditor,
        work: BackgroundTasks,
        log: Callable[[str], None],
        masking: Masking,
    ) -> None:
        self.keep_paused = False
        self._workers, self._holder, self._claims = workers, holder, claims
        self._why_ended, self._configuration = why_ended, configuration
        self._threads, self._editor, self._work = threads, editor, work
        self._log, self._masking = log, masking
        self._options: Mapping[str, Any] = STOP_IN_USER_CODE
        self._files = Files()
        self._missed: dict[str, int] = {}
        self._tries = AttachTries()
        # The editor knows that these debug, of these jobs.
        self._debuggers: set[tuple[str, str]] = set()
        self._detaching: set[asyncio.Future[Any]] = set()
        # Attaching to what was there already when the editor came; whether more of that may be found.
        self._beside: set[asyncio.Future[Any]] = set()
        self._finds_more = False
        self._takes_children = False
        # Those that are to be attached to again once they have settled, by worker_id.
        self._returning: dict[str, Debuggee] = {}
        self._has_told_many = self._has_told_lacking = False

    # --- for an editor -------------------------------------------------------------------

    def begin(self, options: Mapping[str, Any], *, keep_paused: bool, takes_children: bool) -> None:
        """Begins with another editor; what was read or given up for the one before is tried again.

        `options` are debugpy's `attach` arguments; `takes_children`: whether the processes that debuggees
        start are debugged, too.
        """
        self._options, self.keep_paused, self._takes_children = options, keep_paused, takes_children
        self._has_told_many = self._has_told_lacking = False
        self._returning.clear()
        self._files.clear()
        # A new one: attaching that began for the editor before counts for that editor.
        self._tries = AttachTries()
        self._debuggers.clear()

    def watch(self) -> None:
        """Gives an editor that is configured what is attached already."""
        self._beside, self._finds_more = set(), True
        for worker in self._workers.attached:  # these were kept paused, or are of the editor before
            worker.unreported()
            self._work.start(self._adopt(worker))

    def editor_left(self) -> None:
        """Notes that the editor has gone: the cluster runs on, but what is to be kept paused."""
        self._configuration.desired.let_go()
        self._detach([w for w in self._workers.values() if not (self.keep_paused and w.stops)])

    async def close(self) -> None:
        """Detaches from all debuggees; what waits for an answer gets it first."""
        self._detach(self._workers.values())
        if self._detaching:  # these include earlier ones
            await asyncio.wait(self._detaching, timeout=CLOSING)

    # --- found ---------------------------------------------------------------------------

    def may_try(self, debuggee: Debuggee) -> bool:
        """Returns whether attaching has not failed too often for this editor."""
        return self._tries.may(debuggee)

    def take(self, debuggee: Debuggee) -> None:
        """Attaches to a debuggee, for the current editor."""
        new = Worker(debuggee, self._files, self._holder, self._masking)
        self._workers[debuggee.worker_id] = new
        attaching = self._work.start(self._attach(new))
        if self._finds_more:
            self._beside.add(attaching)

    def take_child(self, worker: Worker, child: Message) -> None:
        """Attaches to a process that a debuggee has started; `child` is as `child_of` has it."""
        is_taken = self._takes_children and self._editor.editor is not None and not worker.has_left
        if not is_taken or self._has_many_children(worker.debuggee):
            self._work.start(worker.connection.run(let_child_go(child), SOON))
            return
        debuggee = child_of(worker.debuggee, child)
        known = self._workers.get(debuggee.worker_id)
        if known is None:
            self.take(debuggee)
            if self._has_many_children(worker.debuggee) and not self._has_told_many:
                self._has_told_many = True
                self._editor.say(
                    f"{worker.debuggee.title} has {MOST_CHILDREN} children:"
                    " further ones run on by themselves."
                )
        elif known.has_left or known.debuggee.port != debuggee.port:
            # It has left, or leaves: it was a fork, and is another program now.
            self._returning[debuggee.worker_id] = debuggee

    def _has_many_children(self, parent: Debuggee) -> bool:
        """Returns whether a debuggee has as many children as it may: no program is to fill the list."""
        number = sum(worker.debuggee.parent == parent.worker_id for worker in self._workers.values())
        return number >= MOST_CHILDREN

    async def attached_beside(self) -> None:
        """Waits until what was there when the editor came is attached to, for at most BESIDE seconds in all.

        What the editor resumes before that may end it, or have it pass what it is to stop at.
        """
        beside = [attaching for attaching in self._beside if not attaching.done()]
        if beside:
            await asyncio.wait(beside, timeout=BESIDE)
            self._beside.clear()

    def miss(self, worker_ids: Set[str]) -> None:
        """Notes which debuggees a poll found, by the `worker_ids` of all; the others may have ended.

        It is called after `take` for each that is new.
        """
        self._finds_more = False
        self._missed = {
            name: self._missed.get(name, 0) + 1
            for name, worker in self._workers.items()
            if name not in worker_ids and not worker.debuggee.parent
        }
        for name, missed in self._missed.items():
            if missed > POLLS_MISSED and not self._workers[name].is_attaching:
                self.end(self._workers[name])
        for worker in self._workers.attached:
            self._threads.rows.follow_task(worker)

    # --- attached ------------------------------------------------------------------------

    async def _attach(self, worker: Worker) -> None:
        tries = self._tries  # those of the editor that it is for, which may not be the same at the end
        began = time.monotonic()
        try:
            await worker.attach(self._options, self._claims, children=self._takes_children)
        except AlreadyDebugged as error:
            tries.taken(worker.debuggee)
            worker.holder.refused(worker, error)
        except (AttachFailed, NotWanted) as error:
            # Every try may spoil it for whoever debugs it, so each editor has only one.
            tries.give_up(worker.debuggee)
            worker.holder.refused(worker, error)
        except Exception as error:  # it has ended, or speaks no DAP
            tries.failed(worker.debuggee)
            worker.holder.refused(worker, error)
        else:
            worker.holder.attached_to(worker)
        finally:
            worker.attaching_took = time.monotonic() - began

    def refused(self, worker: Worker, error: Exception) -> None:
        """Tells of a debuggee that could not be attached to, or whose job no editor asked for."""
        title = worker.debuggee.title
        if isinstance(error, AlreadyDebugged):
            self._tell_who_debugs(worker, error.user)
        elif isinstance(error, AttachFailed):
            self._editor.say(f"{title}: {error.message}")
        elif not isinstance(error, NotWanted):
            self._log(f"{title}: {error}")
            if not self.may_try(worker.debuggee):
                self._editor.say(f"{title} can't be attached to, in {MOST_TRIES} tries: {line(str(error))}")
        self._detach([worker])

    def _tell_who_debugs(self, worker: Worker, user: str) -> None:
        """Tells once for each job: all processes of one may be theirs."""
        if (user, worker.debuggee.job_id) in self._debuggers:
            return
        self._debuggers.add((user, worker.debuggee.job_id))
        own = user and user == self._claims.user
        who = f"another debugger of {user}" if own else user or "somebody else"
        self._editor.say(
            f"{worker.debuggee.title}: {who} debugs it. What they debug of that job comes here when they "
            "leave it."
        )

    def attached_to(self, worker: Worker) -> None:
        """Notes that a debuggee takes requests now."""
        if worker.has_left:  # its editor went meanwhile, and the next one is not to see it
            # Where that was while it was dialled, there was nothing yet to detach from.
            self._work.start(worker.detach())
            return
        self._log(f"attached to {worker.debuggee.title}")
        worker.takes_requests()
        self._threads.rows.follow_task(worker)
        self._work.start(self._until_ended(worker))
        for child in worker.connection.client.children:
            self.take_child(worker, child)
        self._tell_what_it_lacks(worker)
        if not self._configuration.is_in(worker):
            self._work.start(self._configuration.put_into(worker))
        if self._editor.editor is None and not (self.keep_paused and worker.stops):
            self._detach([worker])

    def _tell_what_it_lacks(self, worker: Worker) -> None:
        """Tells once that debuggees have no more than debugpy: most come from the same environment."""
        connection = worker.connection
        if connection.has_package or self._has_told_lacking:
            return
        self._has_told_lacking = True
        found = connection.protocol
        has = "no" if found is None else f"version {line(repr(found), 20)} of the"
        self._editor.say(
            f"{worker.debuggee.title} has {has} package `rayside`, and this relay version {PROTOCOL}:"
            " here debugpy's own breakpoints, stacks, variables and steps have to do. A job of"
            " `submit --debug` also has cheap breakpoints, hits counted over all tasks, prints,"
            " `ray.task` in conditions, steps into tasks, and comparing."
        )

    def hand_over(self, worker: Worker, to: Lifecycle) -> None:
        """Gives a debuggee with its stops to another session; this one's editor loses its rows."""
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
        """Returns the name of the program that debugs here, for people."""
        return (self._editor.editor.name if self._editor.editor else "") or "another editor"

    def receive(self, worker: Worker) -> None:
        worker.given_to(self._holder)
        self._workers[worker.debuggee.worker_id] = worker
        if worker.is_attached:
            self._threads.rows.add_all(worker)
            self._threads.rows.follow_task(worker)
            self._work.start(self._adopt(worker))

    async def _adopt(self, worker: Worker) -> None:
        await self._configuration.put_into(worker)
        for thread in [thread for thread, stop in worker.stops.items() if stop.named]:
            self._threads.tell_stop(worker, thread)

    # --- ended, or detached --------------------------------------------------------------

    async def _until_ended(self, worker: Worker) -> None:
        await worker.connection.client.closed.wait()
        worker.holder.end(worker)

    def end(self, worker: Worker) -> None:
        """Notes that a debuggee has ended by itself, or says so."""
        if worker.has_left:
            return
        if worker.is_attaching:
            # `_attach` gets the error, and counts it for the editor that it is for; another may have come
            # since. A debuggee that no editor asked for says so, too, when it is detached from.
            worker.connection.client.close()
            return
        self._log(f"{worker.debuggee.title} has ended")
        if worker.stops and not self._editor.is_empty:
            self._work.start(self._tell_why(worker))
        self._tries.give_up(worker.debuggee)  # Ray lists it for some more seconds
        self._detach([worker])

    async def _tell_why(self, worker: Worker) -> None:
        """Tells why a task died while somebody looked at it, which only Ray knows."""
        titles = [worker.described_at(thread).title for thread in worker.stops]
        try:
            why = await self._why_ended(worker.debuggee)
        except RaysideError as error:
            why = f"why is not known: {error.message}"
        reason = line(why or "Ray does not say why", MOST_OF_A_REASON)
        self._editor.say(f"{titles[0]} has ended while it was stopped: {reason}")

    def _detach(self, workers: Iterable[Worker]) -> None:
        """Detaches: the debuggees run on without us; they are gone from the editor's list at once."""
        for worker in [worker for worker in workers if not worker.has_left]:
            self._threads.remove_rows(worker)
            worker.leaves()
            self._configuration.desired.let_go(worker)
            # Each is detached by itself: one that is frozen must not keep the others from a new editor.
            self._detaching.add(detaching := self._work.start(worker.detach()))
            detaching.add_done_callback(self._detaching.discard)
            self._work.start(self._settle_down(worker, detaching))

    async def _settle_down(self, worker: Worker, detaching: asyncio.Future[Any]) -> None:
        """Lets a detached debuggee be attached to again, once it has settled."""
        await asyncio.wait({detaching})
        self._threads.forget(worker)
        self._configuration.forget(worker)
        await asyncio.sleep(settling(worker.attaching_took))
        if self._workers.get(worker.debuggee.worker_id) is worker:
            del self._workers[worker.debuggee.worker_id]
            returning = self._returning.pop(worker.debuggee.worker_id, None)
            if returning is not None and self._editor.editor is not None:
                self.take(returning)
