"""Puts what the editor wants debuggees to stop at into each of them, also into those that come later."""

from __future__ import annotations

import asyncio
import os.path
from collections.abc import Callable, Coroutine, Sequence
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from rayside.dap.framing import Message
from rayside.errors import RequestFailed
from rayside.relay.desired import Desired, ExceptionFilters
from rayside.relay.editor import CurrentEditor
from rayside.relay.fan_out import FAN_OUT, BackgroundTasks
from rayside.relay.paths import Paths
from rayside.relay.source_files import Lines, find_installed, sha256_of
from rayside.relay.stop_points import Breakpoint, LineBreakpoint
from rayside.relay.worker import Worker, Workers

# Seconds for which changes of breakpoints are gathered: many debuggees answer at once.
SOON = 0.05
# The most debuggees that are asked for one file. All of a job have the same, and one answer does for them.
MOST_ASKED = 8


class Configuration:
    """Keeps what one editor has set, until the next one attaches.

    Attributes:
        paths: how the editor's paths are mapped.
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
        self._desired = Desired()
        self._revision = 0  # the revision of `_desired`
        self._revisions: WeakKeyDictionary[Worker, int] = WeakKeyDictionary()  # those that were set last
        # To these something is to be set once they answer again.
        self._late: WeakSet[Worker] = WeakSet()
        self._telling: asyncio.TimerHandle | None = None
        self._differing: set[str] = set()  # the files of which the editor was told that they differ

    def begin(self, paths: Paths, *, prints: bool = False) -> None:
        """Begins with another editor, which has set nothing; `prints` is as in `Desired`."""
        self._desired.let_go()
        self._desired, self.paths = Desired(prints=prints), paths
        self._revision += 1
        self._differing.clear()

    # --- what the editor asks for --------------------------------------------------------

    async def set_breakpoints(
        self, path: str, specs: Sequence[Message], *, sha256: str | None = None
    ) -> list[Message]:
        """Makes these the breakpoints of the editor's file.

        Args:
            specs: DAP's SourceBreakpoint, each with a line.
            sha256: in hex, of the file as the editor has it.

        Returns:
            DAP's Breakpoint for each.
        """
        if sha256 is not None:
            self._desired.checksums[path] = sha256
        breakpoints = self._desired.replace(path, specs)
        await self._fan_out(lambda worker: self._set_in(worker, path))
        documents = []
        # What was set meanwhile counts, for debuggees have been asked for that.
        for breakpoint_ in map(self._desired.now, breakpoints):
            breakpoint_.reported = breakpoint_.document()
            documents.append(breakpoint_.reported)
        self._rest()
        return documents

    async def set_exceptions(self, arguments: Message) -> list[Message]:
        """Takes the arguments of `setExceptionBreakpoints`; returns DAP's Breakpoint for each filter."""
        self._desired.exceptions = ExceptionFilters.of(arguments)
        await self._fan_out(lambda worker: worker.installed.set_exceptions(self._desired))
        self._rest()
        self._note_filters()
        return self._desired.exceptions.verdicts

    async def set_functions(self, specs: Sequence[Message]) -> list[Message]:
        """Makes these the function breakpoints.

        Args:
            specs: DAP's FunctionBreakpoint, each with a name.

        Returns:
            DAP's Breakpoint for each.
        """
        breakpoints = self._desired.replace_functions(specs)
        await self._fan_out(lambda worker: worker.installed.set_functions(self._desired))
        for breakpoint_ in breakpoints:
            breakpoint_.reported = breakpoint_.document()
        self._rest()
        return [breakpoint_.document() for breakpoint_ in breakpoints]

    @property
    def prints(self) -> bool:
        """Returns whether the editor is told what debuggees print."""
        return self._desired.prints

    async def lines(self, path: str) -> Lines | None:
        """Returns the lines of the editor's file, as the first debuggee that answers has it.

        It is None where no debuggee is known to have it. Waits for at most FAN_OUT seconds.
        """
        # Debuggees that have the file's package come first, then those that may have a file of the same path.
        packed: list[tuple[Worker, str]] = []
        others: list[tuple[Worker, str]] = []
        for worker in self._workers.attached:
            remote = self.paths.remote(path, worker.layout)
            (others if remote == path else packed).append((worker, remote))
            if len(packed) >= MOST_ASKED:
                break
        asked = [*packed, *others][:MOST_ASKED]
        asking = {self._work.start(worker.installed.lines(remote)) for worker, remote in asked}
        until = asyncio.get_running_loop().time() + FAN_OUT
        while asking:
            left = until - asyncio.get_running_loop().time()
            done, asking = await asyncio.wait(asking, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                break
            for each in done:
                lines: Lines | None = None if each.cancelled() or each.exception() else each.result()
                if lines is not None:
                    return lines
        return None

    def by_key(self, key: object) -> Breakpoint | None:
        """Returns the breakpoint that debuggees know by that key; None where it is no more."""
        return self._desired.by_key(key)

    async def _fan_out(self, put: Callable[[Worker], Coroutine[Any, Any, Any]]) -> list[Any]:
        """Puts what has changed into every debuggee; waits and returns as `BackgroundTasks.side_by_side`."""
        before, self._revision = self._revision, self._revision + 1

        async def put_into_worker(worker: Worker) -> Any:
            if self._revisions.get(worker) == before:  # otherwise it is behind, and gets this with the rest
                self._revisions[worker] = self._revision
            try:
                return await put(worker)
            except RequestFailed:
                self._work.start(self._catch_up(worker))
                raise

        return await self._work.side_by_side([put_into_worker(worker) for worker in self._workers.attached])

    def _rest(self) -> None:
        """Lets debuggees run at full speed while they have nothing to stop at."""
        if not self._desired.needs_tracing:
            for worker in self._workers.attached:
                self._work.start(worker.sleep())

    # --- what a debuggee has -------------------------------------------------------------

    def is_in(self, worker: Worker) -> bool:
        return self._revisions.get(worker) == self._revision

    async def put_into(self, worker: Worker) -> None:
        """Puts all that the editor asked for into a debuggee, and takes back what an earlier one did."""
        try:
            while not self.is_in(worker):  # the editor may change it while this is done
                self._revisions[worker] = self._revision
                await self._find(worker, [*self._desired.files])
                by_path = self._by_path(worker)
                for path in {*by_path, *worker.installed.paths}:
                    await worker.installed.set_breakpoints(path, by_path.get(path, []))
                for path in list(self._desired.files):
                    await self._compare(worker, path, self.paths.remote(path, worker.layout))
                await worker.installed.set_exceptions(self._desired)
                self._tell_filters()
                await worker.installed.set_functions(self._desired)
                await self._set_by_value(worker, await worker.installed.await_missing())
                await worker.installed.set_prints(self._desired)
            if not (self._desired.needs_tracing or not worker.is_attaching):
                # It sleeps only now: earlier, that might come between a `breakpoint()` call and its stop.
                await worker.sleep()
        except RequestFailed as error:
            self._log(f"{worker.debuggee.title}: {error.message}")
            self._work.start(self._catch_up(worker))
        self.tell_changes()

    def let_go(self, worker: Worker | None = None) -> None:
        """Lets threads go that wait for others at a breakpoint: a debuggee's, or all."""
        self._desired.let_go(worker)

    def forget(self, worker: Worker) -> None:
        self._desired.let_go(worker)
        self._desired.forget(worker)
        self._revisions.pop(worker, None)

    async def _catch_up(self, worker: Worker) -> None:
        """Gives a debuggee that did not answer in time what it missed, once it answers again."""
        if worker in self._late:
            return
        self._late.add(worker)
        await worker.answers()
        self._late.discard(worker)
        self._revisions.pop(worker, None)
        if not worker.has_left:
            await self.put_into(worker)

    async def _set_in(self, worker: Worker, path: str) -> None:
        await self._find(worker, [path] if self._desired.of(path) else [])
        remote = self.paths.remote(path, worker.layout)
        await worker.installed.set_breakpoints(remote, self._by_path(worker).get(remote, []))
        await self._set_by_value(worker, await worker.installed.await_missing())
        await self._compare(worker, path, remote)
        self.tell_changes()

    async def _find(self, worker: Worker, paths: Sequence[str]) -> None:
        """Searches a debuggee for the editor's files that no rule maps."""
        editors = {os.path.normpath(path): path for path in paths}
        wanted = {
            path: self._checksum(editors[path]) or ""
            for path in editors
            if self.paths.remote(path, worker.layout) == path
        }
        if not wanted:
            return
        found = await find_installed(worker.connection, wanted, timeout=worker.connection.patience)
        for path, (own, note) in found.items():
            worker.installed.notes[own or path] = note
            if own:
                worker.layout.found[path] = own
                self.paths.opens(own, editors[path])

    async def file_loaded(self, worker: Worker, path: str) -> None:
        """Sets the breakpoints of a file of which a debuggee has only functions, pickled by value."""
        if await worker.installed.learn(path):
            await self._set_by_value(worker, [path])
            self.tell_changes()

    async def _set_by_value(self, worker: Worker, paths: Sequence[str]) -> None:
        """Sets the breakpoints of functions that came by value; `paths` are the debuggee's."""
        for path in paths:
            breakpoints = self._by_path(worker).get(path, [])
            for breakpoint_ in breakpoints:
                self.paths.opens(path, breakpoint_.path)
            await worker.installed.set_breakpoints(path, breakpoints)

    def _by_path(self, worker: Worker) -> dict[str, list[LineBreakpoint]]:
        """Returns all breakpoints by the debuggee's path: two paths of the editor's may be the same there."""
        by_path: dict[str, list[LineBreakpoint]] = {}
        for path, breakpoints in self._desired.files.items():
            by_path.setdefault(self.paths.remote(path, worker.layout), []).extend(breakpoints)
        return by_path

    # --- what the editor is told ---------------------------------------------------------

    async def _compare(self, worker: Worker, path: str, remote: str) -> None:
        """Tells the editor once where its file is not the one that the debuggee runs."""
        if path in self._differing:
            return
        checksum = self._checksum(path)
        file = await worker.installed.file(remote) if checksum else None
        # Another debuggee may have said so meanwhile.
        if file is None or file.sha256 == checksum or path in self._differing:
            return
        self._differing.add(path)
        self._editor.say(
            f"{path} was changed after the job was submitted: the tasks run what was submitted, and lines may"
            " differ. Submit the job again to debug what you see."
        )

    def _checksum(self, path: str) -> str | None:
        """Returns the SHA-256, in hex, of the editor's file; None where it is unknown."""
        checksum = self._desired.checksums.get(path)
        return sha256_of(path) if checksum is None and self.paths.shared else checksum

    def _note_filters(self) -> None:
        for condition in self._desired.exceptions.conditions.values():
            condition.reported = condition.verdict

    def _tell_filters(self) -> None:
        """Reports filters that can have no condition in a later debuggee; DAP has no event for it."""
        for condition in self._desired.exceptions.conditions.values():
            verdict = condition.verdict
            if not verdict["verified"] and verdict != condition.reported:
                condition.reported = verdict
                self._editor.say(f"{condition.place}: {verdict['message']}")

    def tell_changes(self) -> None:
        """Sends changes to the editor, once for all debuggees that answer within SOON."""
        if self._telling is None:
            self._telling = asyncio.get_running_loop().call_later(SOON, self._tell_what_changed)

    def _tell_what_changed(self) -> None:
        """Tells the editor of the breakpoints whose state is not what it knows; looks at no others."""
        self._telling = None
        for breakpoint_ in self._desired.take_changed():
            document = breakpoint_.document()
            if breakpoint_.reported is not None and breakpoint_.reported != document:
                breakpoint_.reported = document
                self._editor.event("breakpoint", {"reason": "changed", "breakpoint": document})
