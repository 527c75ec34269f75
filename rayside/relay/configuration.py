"""Configuration of debuggees: an editor's breakpoints and filters, applied to current and later debuggees."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os.path
from collections.abc import Callable, Coroutine, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from rayside.dap.framing import Message
from rayside.errors import DebuggerGone, RequestFailed
from rayside.relay.capabilities import ExceptionFilters
from rayside.relay.editor import CurrentEditor
from rayside.relay.fan_out import FAN_OUT, BackgroundTasks
from rayside.relay.source_files import Lines, Paths, sha256_of
from rayside.relay.stop_points import Breakpoint, FunctionBreakpoint, LineBreakpoint, Results
from rayside.relay.worker import Worker, Workers

# Seconds for which changes of breakpoints are batched: many debuggees answer at the same time.
SOON = 0.05
# The most debuggees that are asked for one file. All debuggees of a job have the same file, so one suffices.
MOST_ASKED = 8

B = TypeVar("B", LineBreakpoint, FunctionBreakpoint)


@dataclass
class Desired:
    """Breakpoints and filters of an editor; `prints`: whether it gets the output of debuggees."""

    files: dict[str, list[LineBreakpoint]] = field(default_factory=dict)  # by the editor's path
    checksums: dict[str, str] = field(default_factory=dict)  # SHA-256 in hex, if the editor sent it
    functions: list[FunctionBreakpoint] = field(default_factory=list)
    exceptions: ExceptionFilters = ExceptionFilters.of({"filters": ["uncaught"]})  # noqa: RUF009 (it is frozen)
    prints: bool = False
    _ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _by_id: dict[int, Breakpoint] = field(default_factory=dict)
    # An ordered set of the breakpoints whose deciding result has changed.
    _changed: dict[Breakpoint, None] = field(default_factory=dict)

    def replace(self, path: str, specs: Sequence[Message]) -> list[LineBreakpoint]:
        """Replaces the breakpoints of a file; existing ones keep their id and hit count."""
        after = self._exchange(self.files.get(path, []), [LineBreakpoint(path, dict(spec)) for spec in specs])
        if after:
            self.files[path] = after
        else:
            self.files.pop(path, None)
        return after

    def replace_functions(self, specs: Sequence[Message]) -> list[FunctionBreakpoint]:
        """Replaces the function breakpoints, as `replace` does for a file."""
        self.functions = self._exchange(self.functions, [FunctionBreakpoint(dict(spec)) for spec in specs])
        return self.functions

    def _exchange(self, before: Sequence[B], after: list[B]) -> list[B]:
        earlier = {(each.place, each.spec.get("column")): each for each in before}
        for each in after:
            if known := earlier.pop((each.place, each.spec.get("column")), None):
                each.replaces(known)
            else:
                each.id = next(self._ids)
        kept = {each.key for each in after}
        for each in before:
            del self._by_id[each.id]
            if each.key not in kept:
                each.rendezvous.let_go()
        for each in after:
            self._by_id[each.id] = each
            each.results = Results(partial(self._changed.__setitem__, each, None))
        return after

    def report(self, breakpoints: Sequence[Breakpoint]) -> list[Message]:
        """Returns DAP's Breakpoint for each, and records it as reported to the editor."""
        documents = []
        for each in breakpoints:
            # A breakpoint that was replaced meanwhile counts, since debuggees have that one.
            now = self._by_id.get(each.id, each)
            now.reported = now.document()
            documents.append(now.reported)
        return documents

    def take_changed(self) -> list[Breakpoint]:
        """Returns the breakpoints whose deciding result has changed since the last call."""
        changed = [each for each in self._changed if self._by_id.get(each.id) is each]
        self._changed.clear()
        return changed

    @property
    def breakpoints(self) -> list[Breakpoint]:
        """Returns all breakpoints, including exception filters with a condition."""
        lines = [each for breakpoints in self.files.values() for each in breakpoints]
        return [*lines, *self.functions, *self.exceptions.conditions.values()]

    def by_key(self, key: object) -> Breakpoint | None:
        """Returns the breakpoint with this debuggee key; None if it was removed."""
        return next((each for each in self.breakpoints if each.key == key), None)

    @property
    def needs_tracing(self) -> bool:
        """Returns whether debuggees have to trace their code, which slows them down."""
        return bool(self.files or self.functions or self.exceptions.needs_tracing)

    def let_go(self, debuggee: Hashable = None) -> None:
        """Resumes threads that wait for others at a breakpoint: a debuggee's, or all."""
        for each in self.breakpoints:
            if debuggee is None:
                each.rendezvous.let_go()
            else:
                each.rendezvous.leave(debuggee)

    def forget(self, debuggee: Hashable) -> None:
        self.let_go(debuggee)
        for each in self.breakpoints:
            each.results.forget(debuggee)


class Configuration:
    """Configuration by one editor, kept until the next one attaches.

    Attributes:
        desired: the editor's breakpoints and filters.
        paths: the editor's path mappings.
    """

    def __init__(
        self,
        workers: Workers,
        *,
        paths: Paths,
        editor: CurrentEditor,
        work: BackgroundTasks,
        log: Callable[[str], None],
    ) -> None:
        self.paths = paths
        self._workers, self._editor, self._work, self._log = workers, editor, work, log
        self.desired = Desired()
        self._revision = 0  # of `desired`
        self._revisions: WeakKeyDictionary[Worker, int] = WeakKeyDictionary()  # last applied, by worker
        self._late: WeakSet[Worker] = WeakSet()  # unresponsive workers that are to be updated
        self._telling: asyncio.TimerHandle | None = None
        self._differing: set[str] = set()  # files that were reported to the editor as different

    def begin(self, paths: Paths, *, prints: bool = False) -> None:
        """Starts an empty configuration for another editor; `prints` is as in `Desired`."""
        self.desired.let_go()
        self.desired, self.paths = Desired(prints=prints), paths
        self._revision += 1
        self._differing.clear()

    # --- requests of the editor ----------------------------------------------------------

    async def set_breakpoints(
        self, path: str, specs: Sequence[Message], *, sha256: str | None = None
    ) -> list[Message]:
        """Replaces the breakpoints of the editor's file; returns DAP's Breakpoint for each."""
        if sha256 is not None:
            self.desired.checksums[path] = sha256
        breakpoints = self.desired.replace(path, specs)
        await self._fan_out(lambda worker: self._set_in(worker, path))
        return self._reported(breakpoints)

    async def set_exceptions(self, arguments: Message) -> list[Message]:
        """Applies arguments of `setExceptionBreakpoints`; returns DAP's Breakpoint for each filter."""
        self.desired.exceptions = ExceptionFilters.of(arguments)
        await self._fan_out(lambda worker: worker.installed.set_exceptions(self.desired.exceptions))
        self._reported([*self.desired.exceptions.conditions.values()])
        return self.desired.exceptions.verdicts

    async def set_functions(self, specs: Sequence[Message]) -> list[Message]:
        """Replaces the function breakpoints; returns DAP's Breakpoint for each."""
        breakpoints = self.desired.replace_functions(specs)
        await self._fan_out(lambda worker: worker.installed.set_functions(self.desired.functions))
        return self._reported(breakpoints)

    def _reported(self, breakpoints: Sequence[Breakpoint]) -> list[Message]:
        """Returns DAP's Breakpoint for each; turns off tracing in debuggees if none needs it."""
        if not self.desired.needs_tracing:
            for worker in self._workers.attached:
                self._work.start(worker.sleep())
        return self.desired.report(breakpoints)

    async def lines(self, path: str) -> Lines | None:
        """Returns the lines of the editor's file from the first debuggee that answers within FAN_OUT."""
        # Debuggees with the file's package come first, then those that may have a file of the same path.
        packed: list[tuple[Worker, str]] = []
        others: list[tuple[Worker, str]] = []
        for worker in self._workers.attached:
            remote = self.paths.remote(path, worker.layout)
            (others if remote == path else packed).append((worker, remote))
            if len(packed) >= MOST_ASKED:
                break
        asked = [*packed, *others][:MOST_ASKED]
        asking = [self._work.start(worker.installed.lines(remote)) for worker, remote in asked]
        for answer in asyncio.as_completed(asking, timeout=FAN_OUT):
            with contextlib.suppress(asyncio.TimeoutError, RequestFailed, DebuggerGone):
                lines: Lines | None = await answer
                if lines is not None:
                    return lines
        return None

    async def _fan_out(self, put: Callable[[Worker], Coroutine[Any, Any, Any]]) -> None:
        """Applies a change in every debuggee; waits as `BackgroundTasks.side_by_side` does."""
        before, self._revision = self._revision, self._revision + 1

        async def put_into_worker(worker: Worker) -> Any:
            if self._revisions.get(worker) == before:  # otherwise it gets this later, with earlier changes
                self._revisions[worker] = self._revision
            try:
                return await put(worker)
            except RequestFailed:
                self._work.start(self._catch_up(worker))
                raise

        await self._work.side_by_side([put_into_worker(worker) for worker in self._workers.attached])

    # --- one debuggee --------------------------------------------------------------------

    def is_in(self, worker: Worker) -> bool:
        return self._revisions.get(worker) == self._revision

    async def put_into(self, worker: Worker) -> None:
        """Applies the editor's configuration in a debuggee, and removes that of an earlier editor."""
        try:
            while not self.is_in(worker):  # the editor may change it meanwhile
                self._revisions[worker] = self._revision
                await self._find(worker, [*self.desired.files])
                by_path = self._by_path(worker)
                for path in {*by_path, *worker.installed.paths}:
                    await worker.installed.set_breakpoints(path, by_path.get(path, []))
                for path in list(self.desired.files):
                    await self._compare(worker, path, self.paths.remote(path, worker.layout))
                await worker.installed.set_exceptions(self.desired.exceptions)
                self._tell_filters()
                await worker.installed.set_functions(self.desired.functions)
                await self._set_by_value(worker, await worker.installed.await_missing())
                await worker.installed.set_prints(self.desired.prints)
            if worker.is_attaching and not self.desired.needs_tracing:
                # Tracing ends only now: earlier, it might end between a `breakpoint()` call and its stop.
                await worker.sleep()
        except RequestFailed as error:
            self._log(f"{worker.debuggee.title}: {error.message}")
            self._work.start(self._catch_up(worker))
        self.tell_changes()

    def forget(self, worker: Worker) -> None:
        self.desired.forget(worker)
        self._revisions.pop(worker, None)

    async def _catch_up(self, worker: Worker) -> None:
        """Applies the configuration in a debuggee after a timeout, once it answers again."""
        if worker in self._late:
            return
        self._late.add(worker)
        await worker.answers()
        self._late.discard(worker)
        self._revisions.pop(worker, None)
        if not worker.has_left:
            await self.put_into(worker)

    async def _set_in(self, worker: Worker, path: str) -> None:
        await self._find(worker, [path] if path in self.desired.files else [])
        remote = self.paths.remote(path, worker.layout)
        await worker.installed.set_breakpoints(remote, self._by_path(worker).get(remote, []))
        await self._set_by_value(worker, await worker.installed.await_missing())
        await self._compare(worker, path, remote)
        self.tell_changes()

    async def _find(self, worker: Worker, paths: Sequence[str]) -> None:
        """Asks a debuggee for its paths of the editor's files that no rule maps."""
        editors = {os.path.normpath(path): path for path in paths}
        wanted = {
            path: self._checksum(editors[path]) or ""
            for path in editors
            if self.paths.remote(path, worker.layout) == path
        }
        found = await worker.installed.find(wanted) if wanted else {}
        for path, own in found.items():
            worker.layout.found[path] = own
            self.paths.opens(own, editors[path])

    async def file_loaded(self, worker: Worker, path: str) -> None:
        """Sets breakpoints in a file's functions that a debuggee got pickled by value, without the file."""
        if await worker.installed.learn(path):
            await self._set_by_value(worker, [path])
            self.tell_changes()

    async def _set_by_value(self, worker: Worker, paths: Sequence[str]) -> None:
        """Sets breakpoints in functions that were pickled by value; `paths` are the debuggee's."""
        for path in paths:
            breakpoints = self._by_path(worker).get(path, [])
            for breakpoint_ in breakpoints:
                self.paths.opens(path, breakpoint_.path)
            await worker.installed.set_breakpoints(path, breakpoints)

    def _by_path(self, worker: Worker) -> dict[str, list[LineBreakpoint]]:
        """Returns all breakpoints by the debuggee's path, which two of the editor's paths may share."""
        by_path: dict[str, list[LineBreakpoint]] = {}
        for path, breakpoints in self.desired.files.items():
            by_path.setdefault(self.paths.remote(path, worker.layout), []).extend(breakpoints)
        return by_path

    # --- reports to the editor -----------------------------------------------------------

    async def _compare(self, worker: Worker, path: str, remote: str) -> None:
        """Reports once to the editor that its file differs from the one that the debuggee runs."""
        if path in self._differing:
            return
        checksum = self._checksum(path)
        file = await worker.installed.file(remote) if checksum else None
        # Another debuggee may have reported the difference meanwhile.
        if file is None or file.sha256 == checksum or path in self._differing:
            return
        self._differing.add(path)
        self._editor.say(
            f"{path} was changed after the job was submitted: the tasks run what was submitted, and lines may"
            " differ. Submit the job again to debug what you see."
        )

    def _checksum(self, path: str) -> str | None:
        """Returns the SHA-256, in hex, of the editor's file; None if unknown."""
        checksum = self.desired.checksums.get(path)
        return sha256_of(path) if checksum is None and self.paths.shared else checksum

    def _tell_filters(self) -> None:
        """Reports filters whose condition a later debuggee does not support; DAP has no event for it."""
        for condition in self.desired.exceptions.conditions.values():
            document = condition.document()
            if not document["verified"] and document != condition.reported:
                condition.reported = document
                self._editor.say(f"{condition.place}: {document['message']}")

    def tell_changes(self) -> None:
        """Sends changes to the editor, batched for all debuggees that answer within SOON."""
        if self._telling is None:
            self._telling = asyncio.get_running_loop().call_later(SOON, self._tell_what_changed)

    def _tell_what_changed(self) -> None:
        """Reports breakpoints whose state has changed to the editor; looks at no others."""
        self._telling = None
        for breakpoint_ in self.desired.take_changed():
            document = breakpoint_.document()
            if breakpoint_.reported is not None and breakpoint_.reported != document:
                breakpoint_.reported = document
                self._editor.event("breakpoint", {"reason": "changed", "breakpoint": document})
