"""Verbs `retry` (runs failed tasks again with edited code) and `edits` (lists a job's edited files)."""

from __future__ import annotations

import asyncio
from typing import Any

from rayside.client.retrying import Retry, ask_in, differing
from rayside.client.session import Session
from rayside.connection.access import Access
from rayside.console import Console
from rayside.dap.additions import ASK
from rayside.dap.framing import Message
from rayside.dap.group_commands import RETURNED, drawn_retries
from rayside.dap.one_request import ask
from rayside.errors import DebuggerBusy, NothingPaused, NotRunning, RequestFailed
from rayside.ray.records import Job
from rayside.verbs import relay_requests
from rayside.verbs.cluster_job import ClusterJob, attach_options, edits_of

# Timeouts in seconds for attaching to failed tasks, and for a failed task that Ray does not list yet.
_ARRIVING, _UNLISTED = 15.0, 4.0


def retry(access: Access, console: Console, wanted: Retry, *, job: str | None, everyone: bool = False) -> int:
    """Makes failed calls again, with today's local files; returns the exit code.

    Tasks of another debugger stay attached to it; others stay stopped for the next debugger. Raises
    NothingPaused, NotRunning, RequestFailed.
    """
    watched = _job(access, job, everyone)
    if watched.ended:
        raise NotRunning(
            f"job {watched.submission_id} has ended, so nothing in it can run again",
            hint="./invokew submit --debug --post-mortem makes failed tasks wait",
        )
    name = watched.submission_id
    with console.progress(), console.work("retry", f"retry in job {name}"):
        try:
            waiting = relay_requests.paused(access, everyone=everyone).tasks
            number = sum(task.job_id == watched.job_id for task in waiting)
            answer = asyncio.run(_with_session(access, wanted, name, everyone, number))
        except DebuggerBusy:
            answer = wanted.ask(_beside(access, name, everyone))
        except RequestFailed as error:
            raise RequestFailed(error.message, hint="./invokew breakpoints lists what is paused") from error
    if console.as_json:
        console.document(answer)
    for row in drawn_retries(answer):
        console.result(row)
    return 0 if all(row["outcome"] == RETURNED for row in answer["retried"]) else 1


def edits(access: Access, console: Console, *, job: str | None, everyone: bool = False) -> None:
    """Lists the files of a job that were edited while it ran, with the SHA-256 of the edited source."""
    watched = _job(access, job, everyone)
    files = edits_of(watched)
    if console.as_json:
        console.document({"job": watched.submission_id, "edits": files})
    others = differing(files)
    for path, sha256 in files.items():
        differs = "  (the file here has another text)" if path in others else ""
        console.result(f"{path}  sha256:{sha256[:12]}{differs}")
    if not files:
        console.result(f"Job {watched.submission_id} runs what was submitted.")


def _job(access: Access, job: str | None, everyone: bool) -> Job:
    dashboard = access.require()
    named = dashboard.job(job).submission_id if job else None
    watched = ClusterJob(dashboard, named, "" if everyone else access.identity.user).submitted()
    if watched is None:
        raise NotRunning("there is no job", hint="./invokew submit --debug --post-mortem starts one")
    return watched


def _beside(access: Access, job: str, everyone: bool) -> Any:
    """Returns a function that sends requests to the relay while an editor has the tasks."""
    port, token = access.identity.ports.relay, access.identity.token_file.read_text().strip()
    whose = {"token": token, "job": job, **({"everyone": True} if everyone else {})}
    return lambda command, arguments, timeout: ask(port, command, {**whose, **arguments}, timeout=timeout)


async def _with_session(access: Access, wanted: Retry, job: str, everyone: bool, number: int) -> Message:
    options = attach_options(access.identity, job, (), everyone=everyone, exceptions=False, take_over=ASK)
    session = Session(options, ClusterJob(access.require(), job))
    await session.start()
    try:
        await _arrived(session, number)
        return await ask_in(session, wanted)
    finally:
        await session.close(keep_stopped=True)


async def _arrived(session: Session, number: int) -> None:
    """Waits until `number` tasks, at least one, have stopped in this session. Raises NothingPaused."""
    until = asyncio.get_running_loop().time() + (_ARRIVING if number else _UNLISTED)
    while len(session.stops) < max(number, 1):
        left = until - asyncio.get_running_loop().time()
        if left <= 0 or await session.next_event(left) is None:
            break
    if not session.stops:
        raise NothingPaused(
            "no task of this job has failed and waits",
            hint="./invokew submit --debug --post-mortem makes failed tasks wait",
        )
