"""Exercise, the API for a lab's code: the learner's files, and jobs on the running cluster."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from bootstrap.errors import NotSolved, RayDied
from bootstrap.labs.copies import Copy
from bootstrap.labs.lesson import Lesson
from bootstrap.targets.target import Target
from rayside import waiting, yaml_file
from rayside.client.commands import Place
from rayside.client.scripted import run_sync
from rayside.client.session import Connect
from rayside.dap.additions import ALWAYS
from rayside.dap.client import Client, SourceBreakpoint
from rayside.dap.framing import Message
from rayside.errors import NotRunning
from rayside.plain import printed
from rayside.ray import jobs
from rayside.ray.debug import Debug
from rayside.ray.records import Job
from rayside.ray.state import Dashboard
from rayside.verbs.cluster_job import ClusterJob, attach_options

# File of the learner's answers: `name: value` lines, with values to be filled in.
ANSWERS = "answers.yaml"
# Timeout in seconds for a lab's job, which takes a few; a loaded machine takes much longer.
PATIENCE = 180.0


@dataclass(frozen=True)
class Run:
    """An ended job: Ray's `status`, and its whole `output`."""

    submission_id: str
    status: str
    exit_code: int | None
    output: str


@dataclass(frozen=True)
class Exercise:
    """One learner's exercise; `folder` is the copy of the lab's files, `report` prints progress."""

    folder: Path
    target: Target
    report: Callable[[str], None]
    _submitted: list[str] = field(default_factory=list)

    @property
    def dashboard(self) -> Dashboard:
        return self.target.access.require()

    @property
    def brought_back(self) -> str:
        return f"./invokew lab {self.folder.name} --reset brings it back"

    def not_solved(self, message: str, hint: str) -> NoReturn:
        raise NotSolved(message, hint=hint)

    def require(self, condition: object, message: str, hint: str) -> None:
        if not condition:
            self.not_solved(message, hint)

    # --- the learner's files --------------------------------------------------------------

    def text(self, name: str) -> str:
        try:
            return (self.folder / name).read_text()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise NotSolved(f"{name} can't be read: {why}", hint=self.brought_back) from None

    def replace(self, name: str, old: str, new: str) -> None:
        """Edits a file of the learner's copy, for a solution; `old` has to occur once."""
        text = self.text(name)
        assert text.count(old) == 1, f"{name} has {text.count(old)} times {old!r}"
        (self.folder / name).write_text(text.replace(old, new))

    def answer(self, name: str) -> Any:
        answers = yaml_file.read(self.folder / ANSWERS)
        value = answers.get(name) if isinstance(answers, Mapping) else None
        self.require(
            value is not None, f"{ANSWERS} has nothing for {name}", f"write what you saw behind {name}:"
        )
        return value

    def write_answers(self, **answers: Any) -> None:
        """Fills in `answers.yaml`, for a solution."""
        lines = self.text(ANSWERS).splitlines()
        for name, value in answers.items():
            places = [at for at, line in enumerate(lines) if line.startswith(f"{name}:")]
            assert len(places) == 1, f"{ANSWERS} has {name} {len(places)} times"
            lines[places[0]] = f"{name}: {value}"
        (self.folder / ANSWERS).write_text("\n".join(lines) + "\n")

    # --- jobs ----------------------------------------------------------------------------

    def submit(
        self,
        entrypoint: str,
        *,
        py_modules: Sequence[str] = (),
        runtime_env: Mapping[str, Any] | None = None,
        debug: bool = False,
        post_mortem: bool = False,
        attach_timeout: float = PATIENCE,
    ) -> str:
        """Submits a job with the copy as its working_dir; `py_modules` are folders in the copy.

        Returns its submission id. Raises the errors of `jobs.prepare` and `Access.submit`.
        """
        hook = Debug(attach_timeout=attach_timeout, post_mortem=post_mortem) if debug else None
        submission = jobs.prepare(
            working_dir=str(self.folder),
            py_modules=[str(self.folder / module) for module in py_modules],
            entrypoint=entrypoint,
            debug=hook,
        )
        submission = replace(submission, runtime_env=dict(runtime_env or {}))
        name = jobs.new_submission_id(entrypoint)
        self.report(f"{entrypoint}: submitting it as {name}")
        self.target.access.submit(submission, name)
        self._submitted.append(name)
        return name

    def submit_all(self, entrypoints: Sequence[str]) -> list[str]:
        """Submits jobs that differ only in their entrypoints; returns their submission ids.

        The first uploads the files, which the others reuse: each of these is one request. Raises as
        `submit`, and NotRunning.
        """
        names = [self.submit(entrypoints[0])]
        runtime_env = self.job(names[0]).runtime_env
        for entrypoint in entrypoints[1:]:
            name = jobs.new_submission_id(entrypoint)
            self.report(f"{entrypoint}: submitting it as {name}")
            self.dashboard.submit(entrypoint, name, runtime_env)
            self._submitted.append(name)
            names.append(name)
        return names

    def wait(self, submission_id: str, *, patience: float = PATIENCE) -> Run:
        """Waits for a job, and returns it. Raises NotSolved if it does not end."""
        job = waiting.until(
            lambda: self.dashboard.job(submission_id), lambda job: job.ended, patience=patience
        )
        self.require(
            job.ended,
            f"job {submission_id} has not ended within {patience:g} s",
            f"./invokew diagnose --job {submission_id} says what it waits for",
        )
        return Run(submission_id, job.status, job.exit_code, self.dashboard.output(submission_id))

    def run(self, entrypoint: str, *, patience: float = PATIENCE, **options: Any) -> Run:
        return self.wait(self.submit(entrypoint, **options), patience=patience)

    def succeeded(self, run: Run) -> Run:
        """Returns the same run. Raises NotSolved if the job did not succeed."""
        last = "\n".join(run.output.strip().splitlines()[-6:])
        self.require(
            run.status == "SUCCEEDED",
            f"job {run.submission_id} is {run.status}; the last that it printed:\n{last}",
            f"./invokew logs --job {run.submission_id} shows all of it",
        )
        return run

    def require_printed(self, output: str, text: str, hint: str) -> None:
        """Checks that a job's output has a text, which its driver prints in one write. Raises NotSolved.

        Ray runs drivers without an output buffer: workers' output may come between the text and its line
        break, or before it in the same line.
        """
        output = printed(output)
        name = text.partition(" ")[0]
        line = re.search(rf"\b{re.escape(name)} .*", output)
        shown = repr(line[0].strip()) if line else f"nothing of {name}"
        self.require(text in output, f"the job says {shown}, and {text!r} is right", hint)

    def job(self, submission_id: str) -> Job:
        return self.dashboard.job(submission_id)

    def debug(
        self,
        submission_id: str,
        *,
        breaks: Sequence[tuple[str, int] | tuple[str, int, str]] = (),
        points: Mapping[str, Sequence[SourceBreakpoint]] | None = None,
        evaluate: Sequence[str] = (),
        exceptions: bool = False,
        timeout: float = PATIENCE,
    ) -> dict[str, Any]:
        """Debugs a job to its end, as `./invokew debug --json` does, and returns the same document.

        With `points` it also has `messages`, the logpoints' output: `{"task", "line", "text"}` each.

        Args:
            breaks: a file of the copy, a line, and optionally a condition.
            points: DAP SourceBreakpoints, as an editor sets them, by file of the copy; for files without
                `breaks`.
        """
        places = [Place(str(self.folder / at[0]), at[1], at[2] if len(at) == 3 else None) for at in breaks]
        options = attach_options(
            self.target.instance, submission_id, places, exceptions=exceptions, take_over=ALWAYS
        )
        messages: list[dict[str, Any]] = []
        if points:
            absolute = {str(self.folder / name): specs for name, specs in points.items()}
            connect = connecting(self.target.instance.ports.relay, absolute, messages, self.report)
            options = replace(options, connect=connect)
        watch = ClusterJob(self.dashboard, submission_id)
        document = run_sync(options, watch, evaluate=evaluate, timeout=timeout, on_event=self.report)
        return {**document, "messages": messages} if points else document

    def line(self, name: str, text: str) -> int:
        numbers = [at for at, line in enumerate(self.text(name).splitlines(), 1) if text in line]
        self.require(len(numbers) == 1, f"{name} has {len(numbers)} lines with {text!r}", self.brought_back)
        return numbers[0]

    @contextmanager
    def untouched(self, lab: Path) -> Iterator[Exercise]:
        """Yields an exercise with the original files of the lab in that folder.

        The learner's answers are compared with the output of these, as the learner has fixed the others. Its
        jobs belong to this exercise, too.
        """
        with tempfile.TemporaryDirectory(prefix="rayside-lab-") as home:
            copy = Copy(Lesson(lab), Path(home))
            copy.make()
            yield replace(self, folder=copy.folder)

    def close(self) -> None:
        """Stops the jobs of this exercise that still run; without Ray, none do."""
        # It must not hide an earlier error.
        with contextlib.suppress(NotRunning, RayDied):
            ended = {job.submission_id for job in self.dashboard.jobs() if job.ended}
            for name in self._submitted:
                if name not in ended:
                    self.dashboard.stop(name)


class _Editor(Client):
    """A connection to the relay that sets `points` when it attaches."""

    points: Mapping[str, Sequence[SourceBreakpoint]]

    async def attach(self, **options: Any) -> Message:
        return await super().attach(breakpoints=self.points, **options)


def connecting(
    port: int,
    points: Mapping[str, Sequence[SourceBreakpoint]],
    messages: list[dict[str, Any]],
    report: Callable[[str], None],
) -> Connect:
    """Returns a function that connects to the relay at that port of this machine.

    It adds the logpoints' output to `messages`: `{"task", "line", "text"}` each, in order of arrival.
    """

    async def connect(*, on_event: Callable[[Message], None]) -> Client:
        def hear(event: Message) -> None:
            body = event.get("body") or {}
            # Without `redirectOutput` no other output event of the relay has `data`.
            if event.get("event") == "output" and "data" in body:
                task = body["data"]["ray"]["task"]
                for line in str(body["output"]).splitlines():
                    text = line.partition(": ")[2]  # after the task's title
                    messages.append({"task": task, "line": body.get("line"), "text": text})
                    report(f"{task} says: {text}")
            on_event(event)

        editor = await _Editor.connect("127.0.0.1", port, on_event=hear)
        editor.points = points
        return editor

    return connect
