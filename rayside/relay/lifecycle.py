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

# Seconds between detaching from a debuggee and attaching again: within milliseconds of its `disconnect`, a
# debuggee may never answer (1 of 7 to 80 times, with debugpy 1.8.22; never of 120 after 0.5 s). On a busy
# machine the pause is as long as attaching took, up to the longest.
SETTLING, LONGEST_SETTLING = 0.5, 10.0
# Polls that miss a debuggee before it counts as ended, since Ray's tables may lag.
POLLS_MISSED = 5
# Timeout in seconds to detach from debuggees when the relay ends.
CLOSING = 10.0
# Seconds for which an editor's `continue` or step waits until debuggees that were there before are attached.
BESIDE = 2.0
# Limit in characters of Ray's reason for the end of a process.
MOST_OF_A_REASON = 600


def settling(attaching_took: float) -> float:
    """Returns the seconds between detaching and attaching again; `attaching_took` is in seconds."""
    return min(max(SETTLING, attaching_took), LONGEST_SETTLING)


class Lifecycle:
    """Attaches to debuggees and detaches; without an editor, only tasks to be kept paused stay attached.

    Attributes:
        keep_paused: whether stopped tasks stay stopped when the editor disconnects.
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
        # Other debuggers that were reported to the editor, as pairs of user and job.
        self._debuggers: set[tuple[str, str]] = set()
        self._detaching: set[asyncio.Future[Any]] = set()
        # Attachments to debuggees that existed when the editor came; whether polling may find more of them.
        self._beside: set[asyncio.Future[Any]] = set()
        self._finds_more = False
        self._takes_children = False
        # Debuggees to attach to again after they have settled, by worker_id.
        self._returning: dict[str, Debuggee] = {}
        self._has_told_many = self._has_told_lacking = False

    # --- for an editor -------------------------------------------------------------------

    def begin(self, options: Mapping[str, Any], *, keep_paused: bool, takes_children: bool) -> None:
        """Starts for another editor: files are read again, and failed attempts to attach are retried.

        `options` are debugpy's `attach` arguments; `takes_children`: whether child processes of debuggees are
        debugged, too.
        """
        self._options, self.keep_paused, self._takes_children = options, keep_paused, takes_children
        self._has_told_many = self._has_told_lacking = False
        self._returning.clear()
        self._files.clear()
        # A new object: pending attempts to attach count for the previous editor.
        self._tries = AttachTries()
        self._debuggers.clear()

    def watch(self) -> None:
        """Configures debuggees that are attached already, for an editor that is configured now."""
        self._beside, self._finds_more = set(), True
        for worker in self._workers.attached:  # these were kept paused, or belonged to the previous editor
            worker.unreported()
            self._work.start(self._adopt(worker))

    def editor_left(self) -> None:
        """Detaches after the editor has disconnected, except from tasks to be kept paused."""
        self._configuration.desired.let_go()
        self._detach([w for w in self._workers.values() if not (self.keep_paused and w.stops)])

    async def close(self) -> None:
        """Detaches from all debuggees, after pending requests are answered."""
        self._detach(self._workers.values())
        if self._detaching:  # these include earlier ones
            await asyncio.wait(self._detaching, timeout=CLOSING)

    # --- found ---------------------------------------------------------------------------

    def may_try(self, debuggee: Debuggee) -> bool:
        """Returns whether an attempt to attach is allowed now, for this editor."""
        return self._tries.may(debuggee)

    def take(self, debuggee: Debuggee) -> None:
        """Attaches to a debuggee, for the current editor."""
        new = Worker(debuggee, self._files, self._holder, self._masking)
        self._workers[debuggee.worker_id] = new
        attaching = self._work.start(self._attach(new))
        if self._finds_more:
            self._beside.add(attaching)

    def take_child(self, worker: Worker, child: Message) -> None:
        """Attaches to a child process of a debuggee; `child` is as in `child_of`."""
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
            # The child is detaching or has ended: it was a fork, and runs another program now.
            self._returning[debuggee.worker_id] = debuggee

    def _has_many_children(self, parent: Debuggee) -> bool:
        """Returns whether a debuggee has reached the limit of children, which keeps the thread list short."""
        number = sum(worker.debuggee.parent == parent.worker_id for worker in self._workers.values())
        return number >= MOST_CHILDREN

    async def attached_beside(self) -> None:
        """Waits for attachments to debuggees that existed when the editor came, BESIDE seconds at most.

        A task that the editor resumes before might end these debuggees, or make them run past breakpoints.
        """
        beside = [attaching for attaching in self._beside if not attaching.done()]
        if beside:
            await asyncio.wait(beside, timeout=BESIDE)
            self._beside.clear()

    def miss(self, worker_ids: Set[str]) -> None:
        """Counts debuggees that a poll did not find (`worker_ids`: the found ones): they may have ended.

        It is called after `take` for each new one.
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
        tries = self._tries  # of the current editor, which may be another one afterwards
        began = time.monotonic()
        try:
            await worker.attach(self._options, self._claims, children=self._takes_children)
        except AlreadyDebugged as error:
            tries.taken(worker.debuggee)
            worker.holder.refused(worker, error)
        except (AttachFailed, NotWanted) as error:
            # Every attempt may break the session of another debugger, so each editor has only one.
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
        """Reports a debuggee that could not be attached to; no message if no editor wants its job."""
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
        """Reports another debugger once for each job, of which it may have all processes."""
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
        """Handles a debuggee that takes requests now."""
        if worker.has_left:  # its editor has disconnected, and the next one must not see it
            # `detach` did nothing if there was no connection yet.
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
        """Reports once that debuggees have only debugpy: most have the same environment."""
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
        """Hands a debuggee with its stops over to another session; this session's editor loses its rows."""
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
        """Returns the name of the session's editor, for people."""
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
        """Handles the end of a debuggee, or its `terminated` event."""
        if worker.has_left:
            return
        if worker.is_attaching:
            # `_attach` gets the error, and counts it for the right editor, since another one may have come.
            # A debuggee that no editor wants sends `terminated`, too, when the relay detaches.
            worker.connection.client.close()
            return
        self._log(f"{worker.debuggee.title} has ended")
        if worker.stops and not self._editor.is_empty:
            self._work.start(self._tell_why(worker))
        self._tries.give_up(worker.debuggee)  # Ray lists it for some more seconds
        self._detach([worker])

    async def _tell_why(self, worker: Worker) -> None:
        """Reports why a stopped task died, which only Ray knows."""
        titles = [worker.described_at(thread).title for thread in worker.stops]
        try:
            why = await self._why_ended(worker.debuggee)
        except RaysideError as error:
            why = f"why is not known: {error.message}"
        reason = line(why or "Ray does not say why", MOST_OF_A_REASON)
        self._editor.say(f"{titles[0]} has ended while it was stopped: {reason}")

    def _detach(self, workers: Iterable[Worker]) -> None:
        """Detaches from debuggees, which continue; their rows are removed immediately."""
        for worker in [worker for worker in workers if not worker.has_left]:
            self._threads.remove_rows(worker)
            worker.leaves()
            self._configuration.desired.let_go(worker)
            # Each detaches separately: a frozen debuggee must not keep the others from a new editor.
            self._detaching.add(detaching := self._work.start(worker.detach()))
            detaching.add_done_callback(self._detaching.discard)
            self._work.start(self._settle_down(worker, detaching))

    async def _settle_down(self, worker: Worker, detaching: asyncio.Future[Any]) -> None:
        """Allows attaching to a detached debuggee again, after it has settled."""
        await asyncio.wait({detaching})
        self._threads.forget(worker)
        self._configuration.forget(worker)
        await asyncio.sleep(settling(worker.attaching_took))
        if self._workers.get(worker.debuggee.worker_id) is worker:
            del self._workers[worker.debuggee.worker_id]
            returning = self._returning.pop(worker.debuggee.worker_id, None)
            if returning is not None and self._editor.editor is not None:
                self.take(returning)
