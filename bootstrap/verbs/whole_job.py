"""Verbs `debug --stacks` and `debug --compare`: what the relay answers for all processes of a job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bootstrap.settings import Settings
from bootstrap.shell import Shell
from bootstrap.targets import choice
from bootstrap.targets.cluster_job import ClusterJob
from rayside.console import Console
from rayside.dap import drawn_stacks, drawn_values
from rayside.dap.expressions import refusal_of
from rayside.dap.framing import Message
from rayside.dap.one_request import ask
from rayside.errors import DebuggerGone, InvalidArgument, NothingPaused, NotRunning

# Seconds for the relay's answer: it asks Ray for up to 5, and then all processes for up to 12.
_PATIENCE = 20.0


def stacks(settings: Settings, console: Console, *, job: str | None, everyone: bool = False) -> None:
    """Shows the stacks of a job's processes, merged to a tree; of the newest job if none is named.

    Raises as `_ask`.
    """
    job, answer = _ask(settings, console, "stacks", job=job, everyone=everyone, what="stacks")
    _show(console, job, answer, drawn_stacks.drawn)


def compare(
    settings: Settings, console: Console, expression: str, *, job: str | None, everyone: bool = False
) -> None:
    """Shows an expression's values in the stopped tasks of a job, grouped; of the newest if none is named.

    Raises:
        InvalidArgument: it is no expression; nobody was asked.
        NothingPaused: no task of the job is stopped in a debugger.
        NotRunning, RequestFailed: as `_ask`.
    """
    if problem := refusal_of(expression):
        raise InvalidArgument(f"--compare: {problem}", hint="as in --compare 'loss' or --compare 'len(rows)'")
    job, answer = _ask(
        *(settings, console, "compare"),
        job=job,
        everyone=everyone,
        what="stopped tasks",
        expression=expression,
    )
    waiting = sum(task["waiting"] for task in answer["failed"])
    if not answer["tasks"] and waiting == len(answer["failed"]):
        wait = f"; {waiting} of its tasks wait for one" if waiting else ""
        raise NothingPaused(
            f"no task of job {job} is stopped in a debugger{wait}",
            hint=f"./invokew debug --job {job} stops them there; Ctrl-C at its prompt leaves them stopped",
        )
    _show(console, job, answer, drawn_values.drawn)


def _ask(
    settings: Settings,
    console: Console,
    command: str,
    *,
    job: str | None,
    everyone: bool,
    what: str,
    **arguments: Any,
) -> tuple[str, Message]:
    """Returns the submission id of a job, the newest if none is named, and the relay's answer about it.

    Args:
        command: the request to the relay, which gets `arguments` and the job.
        what: is asked for, such as `stacks`.

    Raises:
        NotRunning: no cluster is up, no job runs, or the relay does not answer.
        RequestFailed: the relay refuses.
    """
    target = choice.existing(settings, Shell())
    dashboard = target.access.require()
    named = dashboard.job(job).submission_id if job else None
    watched = ClusterJob(dashboard, named, "" if everyone else target.instance.user).submitted()
    if watched is None or watched.ended:
        why = f"job {watched.submission_id} has ended" if watched else "there is no job"
        raise NotRunning(f"{why}, so it has no {what}", hint="./invokew submit --debug starts a job")
    arguments = {"token": target.instance.token_file.read_text(), "job": watched.submission_id, **arguments}
    with console.progress(), console.work(command, f"{what} of job {watched.submission_id}"):
        try:
            return watched.submission_id, ask(
                target.instance.ports.relay, command, arguments, timeout=_PATIENCE
            )
        except DebuggerGone as error:
            raise NotRunning(
                f"the debug relay's port {target.instance.ports.relay} {error.message}",
                hint="./invokew up repairs it",
            ) from error


def _show(
    console: Console, job: str, answer: Message, drawn: Callable[[Mapping[str, Any]], Iterator[str]]
) -> None:
    """Shows the relay's answer about a job: as JSON, or as `drawn` draws it, line by line."""
    if console.as_json:
        console.document({"job": job, **answer})
        return
    console.result(f"job {job}")
    for row in drawn(answer):
        console.result(row)
