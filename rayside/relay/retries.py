"""Retries: failed tasks of a session run again, with sources that were edited since the job was submitted."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rayside.dap.additions import title_of
from rayside.dap.framing import Message
from rayside.dap.group_commands import ALL_FAILED, RAISED, REFUSED, RETRYING
from rayside.errors import DebuggerGone, RequestFailed
from rayside.plain import line, some_of
from rayside.relay.configuration import Configuration
from rayside.relay.connection import PATIENCE, call
from rayside.relay.fan_out import BackgroundTasks
from rayside.relay.group_members import Member, Members, Selector
from rayside.relay.schemas import Refused
from rayside.relay.threads import StopOutcome, Threads
from rayside.relay.worker import Worker, Workers
from rayside.worker import calls, edits, loaded_texts, shared_edits

# The call runs still, or stands at a breakpoint: nobody knows yet.
RUNNING = "running"
_LONGEST_PATH = 4_096
_SHORTEST_ID = 6  # characters of a worker's id
_MOST_SOURCES = 10_000


@dataclass(frozen=True)
class Wanted:
    """A retry, as it was asked for.

    Attributes:
        files: edited texts, by the editor's path.
        group: a selector.
        task: of the group, those of this name, title, process id or worker alone; empty for all.
        here_only: whether the job's other workers keep the code that they have.
        from_start: whether a generator yields again what it has yielded.
        as_they_are: whether inputs that can't be taken anew are used as the failed call has left them.
        within: seconds until the outcome is left open.
    """

    files: Mapping[str, str] = field(default_factory=dict)
    group: str = ALL_FAILED
    task: str = ""
    here_only: bool = False
    from_start: bool = False
    as_they_are: bool = False
    within: float = RETRYING

    @classmethod
    def of(cls, arguments: Message) -> Wanted:
        """Reads the arguments of `retry`, which `schemas` has taken."""
        return cls(
            files_of(arguments),
            group=arguments.get("group", ALL_FAILED),
            task=arguments.get("task", ""),
            here_only=arguments.get("hereOnly", False),
            from_start=arguments.get("fromStart", False),
            as_they_are=arguments.get("asTheyAre", False),
            within=arguments.get("within", RETRYING),
        )


def files_of(arguments: Message) -> dict[str, str]:
    return {file["path"]: file["text"] for file in arguments.get("files", [])}


class Retries:
    """Retries of one debug session.

    Args:
        configuration: what workers stop at, and the paths of the session's editor.
    """

    def __init__(
        self,
        workers: Workers,
        threads: Threads,
        members: Members,
        *,
        configuration: Configuration,
        work: BackgroundTasks,
    ) -> None:
        self._workers, self._threads, self._members = workers, threads, members
        self._configuration, self._work = configuration, work
        self._numbers = itertools.count(1)
        self._outcomes: dict[tuple[Worker, int], asyncio.Future[tuple[str, str]]] = {}
        self._offered: dict[str, str] = {}  # what the editor has saved, by its path
        # What all of a job's workers run, by job: another job's have the file as that was submitted.
        self._applied: dict[str, dict[str, str]] = {}
        self._asked: set[tuple[Worker, int]] = set()  # threads that are about to make their call again

    def begin(self) -> None:
        """Forgets what the editor before had saved."""
        self._offered.clear()

    def offer(self, files: Mapping[str, str]) -> Message:
        """Keeps what an editor has saved for the next retry that brings no files of its own."""
        self._offered.update(files)
        return {"edited": sorted({path for texts in self._applied.values() for path in texts})}

    async def sources(self) -> Message:
        """Returns the SHA-256 of each source that failed tasks run, by the editor's path; "" for several."""
        workers = dict.fromkeys(member.worker for member in await self._of(ALL_FAILED))
        answers = await asyncio.gather(
            *(worker.connection.ask(PATIENCE, loaded_texts.sources) for worker in workers)
        )
        found: dict[str, str] = {}
        for answer in answers:
            rows = list(answer.items())[:_MOST_SOURCES] if isinstance(answer, dict) else []
            for path, sha256 in rows:
                if isinstance(path, str) and isinstance(sha256, str) and len(path) <= _LONGEST_PATH:
                    local = self._configuration.paths.local(path)
                    if local is not None and found.setdefault(local, sha256[:64]) != sha256[:64]:
                        found[local] = ""  # They run different texts: the editor's differs from one.
        return {"files": found}

    async def retry(self, wanted: Wanted, at: tuple[Worker, int | None] | None = None) -> Message:
        """Makes the failed calls of a group again, side by side; or that of the thread `at`.

        Returns:
            `{"edited": [the editor's paths], "retried": [{"task", "worker_id", "outcome", "why"}]}`; an
            outcome is `returned`, `raised`, `refused` (nothing ran) or `running` (not known in that time).

        Raises Refused where nothing in the group has failed.
        """
        members = await self._of(wanted.group) if at is None else [self._members.member(*at)]
        failed = [each for each in members if each.thread is not None]
        members = [each for each in failed if not wanted.task or _is_named(each, wanted.task)]
        if failed and not members:
            names = some_of(sorted({str(each.row["task"]) for each in failed}))
            raise Refused(f"no failed task is {wanted.task[:100]!r}; these have failed: {names}")
        if not members:
            raise Refused(f"no task of @{wanted.group[:100]} has failed and waits")
        files = wanted.files or dict(self._offered)
        of_jobs: dict[str, dict[Worker, None]] = {}
        for member in members:
            of_jobs.setdefault(member.worker.debuggee.job_id, {})[member.worker] = None
        refused = {
            job: await self._edit(workers, files, wanted.here_only) for job, workers in of_jobs.items()
        }
        outcomes = await asyncio.gather(
            *(self._again(each, wanted, refused[each.worker.debuggee.job_id]) for each in members)
        )
        rows = [_row(member, *outcome) for member, outcome in zip(members, outcomes, strict=True)]
        return {"edited": [] if all(refused.values()) else sorted(files), "retried": rows}

    async def restart(self, worker: Worker, thread: int) -> None:
        """Makes the call of one thread again, with what the editor has saved. Raises Refused."""
        member = self._members.member(worker, thread)
        if why := await self._edit({worker: None}, dict(self._offered), here_only=False):
            raise Refused(why)
        number = await self._ask(member)
        self._outcomes[worker, number].add_done_callback(lambda _: self._outcomes.pop((worker, number), None))
        await self._resume(member)

    async def put_into(self, worker: Worker) -> None:
        """Gives a worker that has come the edits of the others, before its next task. Raises DebuggerGone."""
        if texts := self._texts(worker, self._applied.get(worker.debuggee.job_id, {})):
            worker.installed.edited(texts)
            await worker.connection.ask(PATIENCE, edits.apply_later, texts)

    def take(self, worker: Worker, body: Message) -> None:
        """Takes a worker's report of an outcome; `body` is that of EVENT of worker/calls.py."""
        self._work.start(worker.installed.answer_thread(body["number"]))
        outcome = self._outcomes.get((worker, body["key"]))
        if outcome is not None and not outcome.done():
            outcome.set_result((body["outcome"], worker.masks.text(body.get("why", ""))))

    # --- who -----------------------------------------------------------------------------

    async def _of(self, group: str) -> list[Member]:
        """Returns the members of a group that stand still where they have failed."""
        selector = Selector.of(group)
        await self._members.learn([selector])
        members, _ = self._members.of(selector)
        return [each for each in members if each.thread is not None and each.worker.has_failed(each.thread)]

    # --- edits ---------------------------------------------------------------------------

    def _texts(self, worker: Worker, files: Mapping[str, str]) -> dict[str, str]:
        return {self._configuration.paths.remote(path, worker.layout): text for path, text in files.items()}

    async def _edit(self, workers: Mapping[Worker, None], files: Mapping[str, str], here_only: bool) -> str:
        """Edits what these workers of one job run; returns why not, and has changed nothing then."""
        if not files:
            return ""
        for change in (calls.check, edits.apply):
            answers = await asyncio.gather(*(self._changed(worker, change, files) for worker in workers))
            if why := next(filter(None, answers), ""):
                return why
        checksums = self._configuration.desired.checksums
        for path in checksums.keys() & files.keys():
            checksums[path] = hashlib.sha256(files[path].encode()).hexdigest()
        for worker in workers:
            worker.installed.edited(self._texts(worker, files))
            self._configuration.forget(worker)
        await self._work.side_by_side([self._configuration.put_into(worker) for worker in workers])
        if not here_only:
            first = next(iter(workers))
            job = first.debuggee.job_id
            texts = self._texts(first, files)
            names = dict(zip(texts, files, strict=True))
            answer = await first.connection.ask(PATIENCE, shared_edits.publish, texts, names)
            if answer != "":
                return line(
                    str(answer or "Ray does not keep it for later workers: --here-only does without"), 500
                )
            self._applied.setdefault(job, {}).update(files)
            its = [worker for worker in self._workers.attached if worker.debuggee.job_id == job]
            rest = [worker for worker in its if worker not in workers]
            await self._work.side_by_side([self.put_into(worker) for worker in rest])
        for file in files:
            self._offered.pop(file, None)
        return ""

    async def _changed(
        self, worker: Worker, change: Callable[[dict[str, str]], str], files: Mapping[str, str]
    ) -> str:
        try:
            answer = await worker.connection.ask(PATIENCE, change, self._texts(worker, files))
        except DebuggerGone:
            return f"{worker.debuggee.title} has ended"
        if not isinstance(answer, str):
            return f"{worker.debuggee.title} has no package `rayside` of this version, so it can't be edited"
        return line(answer, 500)

    # --- one call ------------------------------------------------------------------------

    async def _again(self, member: Member, wanted: Wanted, refused: str) -> tuple[str, str]:
        if refused:
            return REFUSED, refused
        worker, thread = member.worker, member.thread
        assert thread is not None, "only a thread that is stopped has failed"
        try:
            number = await self._ask(member, from_start=wanted.from_start, as_they_are=wanted.as_they_are)
        except Refused as error:
            return REFUSED, str(error)
        outcome = self._outcomes[worker, number]
        stop = self._threads.awaited_stops.expect(worker, thread)
        try:
            await self._resume(member)
            until = asyncio.get_running_loop().time() + wanted.within
            await _first(until, outcome, stop)
            if stop.done() and stop.result() is StopOutcome.ENDED and not worker.has_left:
                # A call of an async actor stood still in a thread of its own.
                stop = self._threads.awaited_stops.expect(worker, None)
                await _first(until, outcome, stop)
            if outcome.done():
                if outcome.result()[0] == RAISED:
                    await self._stands_still(worker)
                return outcome.result()
            if stop.done() and stop.result() is StopOutcome.STOPPED:
                return RUNNING, "it has stopped on its way, and goes on when it is resumed"
            if stop.done():
                return RAISED, "its worker has ended"
            return RUNNING, f"it has not ended within {wanted.within:g} s"
        except (RequestFailed, DebuggerGone) as error:
            return REFUSED, line(error.message, 500)
        finally:
            self._outcomes.pop((worker, number), None)
            if not stop.done():
                for each in (thread, None):
                    self._threads.awaited_stops.give_up(worker, each)

    async def _stands_still(self, worker: Worker) -> None:
        """Waits until a call that has raised again is known to stand still: who leaves before detaches it."""
        if not any(map(worker.has_failed, worker.stops)):
            stop = self._threads.awaited_stops.expect(worker, None)
            await _first(asyncio.get_running_loop().time() + PATIENCE, stop)

    async def _ask(self, member: Member, *, from_start: bool = False, as_they_are: bool = False) -> int:
        """Asks a thread to make its call again; returns the number of the attempt. Raises Refused."""
        worker, thread, number = member.worker, member.thread, next(self._numbers)
        assert thread is not None, "only a thread that is stopped has failed"
        if (worker, thread) in self._asked:
            raise Refused("it is about to run again already")
        question = call(calls.here, number, from_start=from_start, as_they_are=as_they_are)
        self._asked.add((worker, thread))
        answer = ""
        try:
            answer = await worker.text_at(thread, question)
        finally:
            if answer != calls.OK:
                self._asked.discard((worker, thread))
        if answer != calls.OK:
            raise Refused(line(answer, 500) or f"{worker.debuggee.title} does not answer, or resumes already")
        self._outcomes[worker, number] = asyncio.get_running_loop().create_future()
        return number

    async def _resume(self, member: Member) -> None:
        assert member.thread is not None, "only a thread that is stopped resumes"
        arguments = {"threadId": member.thread}
        try:
            await self._threads.resume(member.worker, "continue", arguments, lambda _: None, unasked=True)
        finally:
            self._asked.discard((member.worker, member.thread))


async def _first(until: float, *ends: asyncio.Future[Any]) -> None:
    left = max(0.0, until - asyncio.get_running_loop().time())
    await asyncio.wait(ends, timeout=left, return_when=asyncio.FIRST_COMPLETED)


def _is_named(member: Member, task: str) -> bool:
    debuggee, row = member.worker.debuggee, member.row
    is_worker = len(task) >= _SHORTEST_ID and debuggee.shown_id.startswith(task)
    return is_worker or task in (row["task"], str(row["pid"]), title_of(row["task"], row["pid"], row["node"]))


def _row(member: Member, outcome: str, why: str) -> Message:
    row = {"task": member.row["task"], "worker_id": member.worker.debuggee.shown_id}
    return {**row, "outcome": outcome, "why": why}
