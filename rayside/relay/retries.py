"""Retries of failed tasks in a debug session, with the source files that were edited since the job began."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rayside.dap.additions import title_of
from rayside.dap.framing import Message
from rayside.dap.group_commands import ALL_FAILED, RAISED, REFUSED, RETRYING
from rayside.errors import DebuggerGone, RequestFailed
from rayside.plain import line, some_of
from rayside.relay.configuration import Configuration
from rayside.relay.connection import PATIENCE, call
from rayside.relay.edited_files import EditedFiles
from rayside.relay.fan_out import BackgroundTasks
from rayside.relay.group_members import Member, Members, Selector
from rayside.relay.schemas import Refused
from rayside.relay.threads import StopOutcome, Threads
from rayside.relay.worker import Worker
from rayside.worker import calls, loaded_sources

# The outcome of a call that still runs, or has stopped at a breakpoint.
RUNNING = "running"
_LONGEST_PATH = 4_096
_SHORTEST_ID = 6  # characters of a worker's id
_MOST_SOURCES = 10_000


@dataclass(frozen=True)
class Wanted:
    """Requested retry.

    Attributes:
        files: edited sources, by the editor's path.
        group: a selector of tasks.
        task: name, title, process id or worker id of tasks in the group; empty for all.
        here_only: whether the job's other workers keep their code.
        from_start: whether a generator yields its values again.
        as_they_are: whether to use the inputs as the failed call left them if the originals are unavailable.
        within: timeout in seconds for the outcome.
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
        """Reads the arguments of a `retry` request that `schemas` has validated."""
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
        configuration: provides the path mappings of the session's editor.

    Attributes:
        files: the session's edited files.
    """

    def __init__(
        self,
        files: EditedFiles,
        threads: Threads,
        members: Members,
        configuration: Configuration,
        work: BackgroundTasks,
    ) -> None:
        self.files = files
        self._threads, self._members, self._configuration = threads, members, configuration
        self._work = work
        self._numbers = itertools.count(1)
        self._outcomes: dict[tuple[Worker, int], asyncio.Future[tuple[str, str]]] = {}
        self._asked: set[tuple[Worker, int]] = set()  # threads about to make their call again

    async def sources(self) -> Message:
        """Returns the SHA-256 of each source of failed tasks, by the editor's path; "" if they differ."""
        workers = dict.fromkeys(member.worker for member in await self._of(ALL_FAILED))
        answers = await asyncio.gather(
            *(worker.connection.ask(PATIENCE, loaded_sources.sources) for worker in workers)
        )
        found: dict[str, str] = {}
        for answer in answers:
            rows = list(answer.items())[:_MOST_SOURCES] if isinstance(answer, dict) else []
            for path, sha256 in rows:
                if isinstance(path, str) and isinstance(sha256, str) and len(path) <= _LONGEST_PATH:
                    local = self._configuration.paths.local(path)
                    if local is not None and found.setdefault(local, sha256[:64]) != sha256[:64]:
                        found[local] = ""  # The workers' texts differ, so the editor's differs from one.
        return {"files": found}

    async def retry(self, wanted: Wanted, at: tuple[Worker, int | None] | None = None) -> Message:
        """Makes the failed calls of a group again in parallel, or the call of the thread `at`.

        Returns:
            `{"edited": [the editor's paths], "retried": [{"task", "worker_id", "outcome", "why"}]}`; an
            outcome is `returned`, `raised`, `refused` (nothing ran) or `running` (none within the timeout).

        Raises Refused if no task in the group has failed.
        """
        members = await self._of(wanted.group) if at is None else [self._members.member(*at)]
        failed = [each for each in members if each.thread is not None]
        members = [each for each in failed if not wanted.task or _is_named(each, wanted.task)]
        if failed and not members:
            names = some_of(sorted({str(each.row["task"]) for each in failed}))
            raise Refused(f"no failed task is {wanted.task[:100]!r}; these have failed: {names}")
        if not members:
            raise Refused(f"no task of @{wanted.group[:100]} has failed and waits")
        files = wanted.files or self.files.offered
        of_jobs: dict[str, dict[Worker, None]] = {}
        for member in members:
            of_jobs.setdefault(member.worker.debuggee.job_id, {})[member.worker] = None
        refused: dict[Worker, str] = {}
        for workers in of_jobs.values():
            refused |= await self.files.apply(workers, files, wanted.here_only)
        outcomes = await asyncio.gather(
            *(self._again(each, wanted, refused.get(each.worker, "")) for each in members)
        )
        rows = [_row(member, *outcome) for member, outcome in zip(members, outcomes, strict=True)]
        is_edited = any(each.worker not in refused for each in members)
        return {"edited": sorted(files) if is_edited else [], "retried": rows}

    async def restart(self, worker: Worker, thread: int) -> None:
        """Makes the call of one thread again, with the files that the editor has saved. Raises Refused."""
        member = self._members.member(worker, thread)
        if refused := await self.files.apply([worker], self.files.offered, here_only=False):
            raise Refused(refused[worker])
        number = await self._ask(member)
        self._outcomes[worker, number].add_done_callback(lambda _: self._outcomes.pop((worker, number), None))
        await self._resume(member)

    def take(self, worker: Worker, body: Message) -> None:
        """Receives a worker's report of an outcome; `body` belongs to EVENT of worker/calls.py."""
        self._work.start(worker.installed.answer_thread(body["number"]))
        outcome = self._outcomes.get((worker, body["key"]))
        if outcome is not None and not outcome.done():
            outcome.set_result((body["outcome"], worker.masks.text(body.get("why", ""))))

    # --- members -----------------------------------------------------------------------------

    async def _of(self, group: str) -> list[Member]:
        """Returns the members of a group that failed and wait."""
        selector = Selector.of(group)
        await self._members.learn([selector])
        members, _ = self._members.of(selector)
        return [each for each in members if each.thread is not None and each.worker.has_failed(each.thread)]

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
                # The failed call of an async actor waited in a separate thread, which has ended.
                stop = self._threads.awaited_stops.expect(worker, None)
                await _first(until, outcome, stop)
            if outcome.done():
                if outcome.result()[0] == RAISED:
                    await self._stands_still(worker)
                return outcome.result()
            if stop.done() and stop.result() is StopOutcome.STOPPED:
                return RUNNING, "it has stopped at a breakpoint"
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
        """Waits for the stop of a call that raised again: a client that leaves before would detach it."""
        if not any(map(worker.has_failed, worker.stops)):
            stop = self._threads.awaited_stops.expect(worker, None)
            await _first(asyncio.get_running_loop().time() + PATIENCE, stop)

    async def _ask(self, member: Member, *, from_start: bool = False, as_they_are: bool = False) -> int:
        """Asks a thread to make its call again; returns the attempt's id. Raises Refused."""
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
