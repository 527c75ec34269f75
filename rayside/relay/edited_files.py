"""Edited files of a debug session: saved files of its editor, and files that each job's workers run."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from rayside.errors import DebuggerGone
from rayside.plain import line
from rayside.relay.configuration import Configuration
from rayside.relay.connection import PATIENCE
from rayside.relay.fan_out import BackgroundTasks
from rayside.relay.schemas import Refused
from rayside.relay.worker import Worker, Workers
from rayside.worker import calls, edits, shared_edits

_UNPUBLISHED = "Ray does not keep it for later workers: --here-only does without"


class EditedFiles:
    """Edited files of one debug session, by the editor's path.

    Args:
        configuration: breakpoints, and the path mappings of the session's editor.
    """

    def __init__(self, workers: Workers, configuration: Configuration, work: BackgroundTasks) -> None:
        self._workers, self._configuration, self._work = workers, configuration, work
        self._offered: dict[str, str] = {}
        # By job: another job's workers run the file as that job was submitted.
        self._applied: dict[str, dict[str, str]] = {}

    @property
    def offered(self) -> Mapping[str, str]:
        """Returns the saved files that are not yet applied."""
        return dict(self._offered)

    @property
    def applied(self) -> list[str]:
        return sorted({path for texts in self._applied.values() for path in texts})

    def begin(self) -> None:
        """Drops the saved files of the previous editor."""
        self._offered.clear()

    def offer(self, files: Mapping[str, str]) -> None:
        """Keeps files that an editor has saved, for the next retry that brings none. Raises Refused."""
        offered = {**self._offered, **files}
        if sum(map(len, offered.values())) > shared_edits.LONGEST:
            raise Refused("the files that were saved are too long together: submit the job again for them")
        self._offered = offered

    async def put_into(self, worker: Worker) -> None:
        """Sends a job's edits to a new worker, for its next task. Raises DebuggerGone."""
        if texts := self._texts(worker, self._applied.get(worker.debuggee.job_id, {})):
            worker.installed.edited(texts)
            await worker.connection.ask(PATIENCE, edits.apply_later, texts)

    def _texts(self, worker: Worker, files: Mapping[str, str]) -> dict[str, str]:
        return {self._configuration.paths.remote(path, worker.layout): text for path, text in files.items()}

    async def apply(
        self, workers: Iterable[Worker], files: Mapping[str, str], here_only: bool
    ) -> dict[Worker, str]:
        """Applies edited files in workers of one job; returns the reasons of workers that refused.

        An edit that one worker can't apply is refused in all, before anything is changed. A new module-level
        statement that raises is detected only when it runs, and is refused in that worker only.
        """
        if not files:
            return {}
        refused = await self._changed(workers, calls.check, files)
        if why := next((why for worker, why in refused.items() if not worker.has_left), ""):
            return {**dict.fromkeys(workers, why), **refused}
        refused |= await self._changed([each for each in workers if each not in refused], edits.apply, files)
        edited = [each for each in workers if each not in refused]
        if edited and (why := await self._keep(edited, files, here_only)):
            return {**dict.fromkeys(workers, why), **refused}
        return refused

    async def _keep(self, workers: Sequence[Worker], files: Mapping[str, str], here_only: bool) -> str:
        """Updates breakpoints, the job's other workers and its later ones; returns a reason on failure."""
        checksums = self._configuration.desired.checksums
        for path in checksums.keys() & files.keys():
            checksums[path] = hashlib.sha256(files[path].encode()).hexdigest()
        for worker in workers:
            worker.installed.edited(self._texts(worker, files))
            self._configuration.forget(worker)
        await self._work.side_by_side([self._configuration.put_into(worker) for worker in workers])
        if not here_only:
            job = workers[0].debuggee.job_id
            if why := await self._published(workers, files):
                return why
            self._applied.setdefault(job, {}).update(files)
            its = [worker for worker in self._workers.attached if worker.debuggee.job_id == job]
            rest = [worker for worker in its if worker not in workers]
            await self._work.side_by_side([self.put_into(worker) for worker in rest])
        for file in files:
            self._offered.pop(file, None)
        return ""

    async def _published(self, workers: Iterable[Worker], files: Mapping[str, str]) -> str:
        """Publishes an edit for the job's later workers through one of these; returns a reason on failure."""
        for worker in workers:
            texts = self._texts(worker, files)
            names = dict(zip(texts, files, strict=True))
            with suppress(DebuggerGone):
                answer = await worker.connection.ask(PATIENCE, shared_edits.publish, texts, names)
                return "" if answer == "" else line(str(answer or _UNPUBLISHED), 500)
        return _UNPUBLISHED

    async def _changed(
        self, workers: Iterable[Worker], change: Callable[[dict[str, str]], str], files: Mapping[str, str]
    ) -> dict[Worker, str]:
        """Calls `change` in these workers; returns the reasons of workers that refused."""
        asked = [*workers]
        answers = await asyncio.gather(*(self._change(worker, change, files) for worker in asked))
        return {worker: why for worker, why in zip(asked, answers, strict=True) if why}

    async def _change(
        self, worker: Worker, change: Callable[[dict[str, str]], str], files: Mapping[str, str]
    ) -> str:
        try:
            answer = await worker.connection.ask(PATIENCE, change, self._texts(worker, files))
        except DebuggerGone:
            return f"{worker.debuggee.title} has ended"
        if not isinstance(answer, str):
            return f"{worker.debuggee.title} has no package `rayside` of this version, so it can't be edited"
        return line(answer, 500)
