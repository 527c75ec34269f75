"""Asks the relay about all processes of a job that runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bootstrap.settings import Settings
from bootstrap.shell import Shell
from bootstrap.targets import choice
from bootstrap.targets.cluster_job import ClusterJob
from rayside.console import Console
from rayside.dap.framing import Message
from rayside.dap.one_request import ask
from rayside.errors import DebuggerGone, NotRunning

# Seconds for the relay's answer: it asks Ray for up to 5, and then all processes for up to 12.
_PATIENCE = 20.0


def ask_of_job(
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
                hint="./invokew up mends it",
            ) from error


def show(
    console: Console, job: str, answer: Message, drawn: Callable[[Mapping[str, Any]], Iterator[str]]
) -> None:
    """Shows the relay's answer about a job: as JSON, or as `drawn` draws it, line by line."""
    if console.as_json:
        console.document({"job": job, **answer})
        return
    console.result(f"job {job}")
    for row in drawn(answer):
        console.result(row)
