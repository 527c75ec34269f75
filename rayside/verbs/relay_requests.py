"""Verbs `breakpoints`, `stacks` and `compare`: one request to the relay each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rayside import waiting
from rayside.connection.access import Access
from rayside.console import PACKAGE, Console
from rayside.dap.framing import Message
from rayside.dap.one_request import ask
from rayside.dap.paused_task import PausedTask
from rayside.errors import DebuggerGone, InvalidArgument, NothingPaused, NotRunning, RequestFailed
from rayside.ray.state import LAG
from rayside.users import sees
from rayside.verbs.cluster_job import ClusterJob

# Timeouts in seconds for the relay's answer: its requests to Ray take up to 5, to a job's processes up to 12.
_PATIENCE, _PATIENCE_OF_JOB = 8.0, 20.0


@dataclass(frozen=True)
class Paused:
    """Stopped tasks; `hidden` is the number of other users' tasks that wait for a debugger."""

    tasks: list[PausedTask]
    hidden: int = 0


def paused(access: Access, *, everyone: bool = False) -> Paused:
    """Returns the tasks that are stopped now, once Ray knows the names of those that wait.

    On a shared Ray cluster these are the tasks of the user's own jobs and of jobs without a user; with
    `everyone` all, except tasks in another user's debugger.
    """
    access.require()
    return waiting.until(
        lambda: _look(access, everyone), lambda seen: all(task.task for task in seen.tasks), patience=LAG
    )


def _look(access: Access, everyone: bool) -> Paused:
    try:
        answer = _request(access, "pausedTasks", _PATIENCE, **({"everyone": True} if everyone else {}))
    except RequestFailed as error:
        answer = {"problem": f"the debug relay refused {error.message}"}
    if problem := answer.get("problem", "the debug relay is of an older Rayside"):
        raise NotRunning(str(problem), hint="./invokew up repairs it")
    # Ray's times have whole seconds.
    rows = [{**row, "since": re.sub(r"\.[0-9]+", "", row["since"])} for row in answer["tasks"]]
    return Paused([PausedTask(**row) for row in rows], int(answer.get("hidden", 0)))


def breakpoints(access: Access, console: Console, *, everyone: bool = False) -> None:
    seen = paused(access, everyone=everyone)
    tasks = seen.tasks
    if console.as_json:
        console.document([task.document() for task in tasks])
        return
    if seen.hidden:
        console.result(f"Paused in jobs of others: {seen.hidden} (--everyone lists them)\n")
    if not tasks:
        _show_none(access, console, everyone=everyone)
        return
    whose = ("user",) if access.identity.user else ()
    rows = []
    for task in tasks:
        # Ray does not record the stop time of a task that waits for a debugger.
        when = f"{'stopped' if task.held else 'began to run'} {task.since}"
        rows.append((task.task, task.job_id, *(task.user for _ in whose), task.node_ip, str(task.pid), when))
    console.table(("task", "job", *whose, "node", "pid", "when"), rows)
    console.result(f"\nNext: ./invokew debug{' --everyone' if everyone and whose else ''}")


def _show_none(access: Access, console: Console, *, everyone: bool) -> None:
    user = "" if everyone else access.identity.user
    # A new job takes some seconds until its first task runs.
    jobs = [job for job in access.require().jobs() if not job.ended and sees(user, job.user)]
    running = f"; running: {', '.join(job.submission_id for job in jobs)}" if jobs else ""
    # The package has no example, and an existing Ray cluster gets none.
    has_example = console.program != PACKAGE and not access.identity.user
    submit = "runs the example, which pauses" if has_example else "--help"
    following = "debug waits until one stops" if jobs else f"submit {submit}"
    of_user = f" of {user}" if user else ""
    console.result(f"No task{of_user} is paused{running}. Next: ./invokew {following}")


def stacks(access: Access, console: Console, *, job: str | None, everyone: bool = False) -> None:
    """Shows the stacks of a job's processes, merged to a tree; of the newest job if none is named."""
    from rayside.dap.drawn_stacks import drawn

    job, answer = _of_job(access, console, "stacks", "stacks", job, everyone)
    _show(console, job, answer, drawn)


def compare(
    access: Access, console: Console, expression: str, *, job: str | None, everyone: bool = False
) -> None:
    """Shows an expression's values in the stopped tasks of a job, grouped; of the newest if none is named."""
    from rayside.dap.drawn_values import drawn
    from rayside.dap.expressions import refusal_of

    if problem := refusal_of(expression):
        raise InvalidArgument(f"compare: {problem}", hint="as in 'loss' or 'len(rows)'")
    job, answer = _of_job(access, console, "compare", "stopped tasks", job, everyone, expression=expression)
    waiting = sum(task["waiting"] for task in answer["failed"])
    if not answer["tasks"] and waiting == len(answer["failed"]):
        wait = f"; {waiting} of its tasks wait for one" if waiting else ""
        raise NothingPaused(
            f"no task of job {job} is stopped in a debugger{wait}",
            hint=f"./invokew debug --job {job} stops them there; Ctrl-C at its prompt leaves them stopped",
        )
    _show(console, job, answer, drawn)


def _of_job(
    access: Access,
    console: Console,
    command: str,
    what: str,
    job: str | None,
    everyone: bool,
    **arguments: Any,
) -> tuple[str, Message]:
    """Returns the submission id of a job, the newest if none is named, and the relay's answer about it."""
    dashboard = access.require()
    named = dashboard.job(job).submission_id if job else None
    watched = ClusterJob(dashboard, named, "" if everyone else access.identity.user).submitted()
    if watched is None or watched.ended:
        why = f"job {watched.submission_id} has ended" if watched else "there is no job"
        raise NotRunning(f"{why}, so it has no {what}", hint="./invokew submit --debug starts a job")
    name = watched.submission_id
    with console.progress(), console.work(command, f"{what} of job {name}"):
        return name, _request(access, command, _PATIENCE_OF_JOB, job=name, **arguments)


def _request(access: Access, command: str, patience: float, **arguments: Any) -> Message:
    """Returns the relay's answer. Raises NotRunning without one, and RequestFailed if it refuses."""
    port, token = access.identity.ports.relay, access.identity.token_file.read_text()
    try:
        return ask(port, command, {"token": token, **arguments}, timeout=patience)
    except DebuggerGone as error:
        raise NotRunning(
            f"the debug relay's port {port} {error.message}", hint="./invokew up repairs it"
        ) from error


def _show(
    console: Console, job: str, answer: Message, drawn: Callable[[Mapping[str, Any]], Iterator[str]]
) -> None:
    if console.as_json:
        console.document({"job": job, **answer})
    console.result(f"job {job}")
    for row in drawn(answer):
        console.result(row)
