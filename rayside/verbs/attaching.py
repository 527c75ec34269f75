"""Verb `attach`: opens a debugger in running processes of jobs that were submitted without --debug."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from rayside.connection.access import Access
from rayside.console import Console
from rayside.errors import InvalidArgument, NotAttachable, NotReady
from rayside.plain import counted, line
from rayside.ray.job_processes import JobProcess, processes_of
from rayside.ray.own_job import run_module
from rayside.ray.state import Dashboard
from rayside.relay_actor.opening import FILE, NOT_POSSIBLE, OPENED, Outcome, Process, outcomes
from rayside.users import sees

_NAME = "rayside-attach"
_OPEN = "open"
# Limit: processes that one job opens.
_MOST = 1_000
# Seconds until progress is announced; timeout in seconds of the job: some 10, and up to 70 more for actors
# and stacks.
_SILENT, _PATIENCE = 2.0, 120.0
# Limit: characters of a failed job's output in its error.
_LONGEST = 400
# A frame in py-spy's text outside of Ray, Rayside and threading.py.
_PROGRAM = r"^ +.*\((?!ray/|rayside/|threading\.py:)[^()]*\)$"


def attach(access: Access, console: Console, id: str) -> None:
    """Opens a debugger in the processes of a job, an actor or a worker, and shows each one's outcome."""
    if not id.strip():
        raise InvalidArgument("no job, actor or worker was named", hint="./invokew status lists the jobs")
    dashboard, user = access.require(), access.identity.user
    processes = processes_of(dashboard, id)
    closed = [process for process in processes if not process.port]
    results = {process.worker_id: Outcome(process.worker_id, _OPEN) for process in processes if process.port}
    if closed:
        title = f"debuggers in {counted(len(closed), 'process', 'processes')}"
        with _told(console, title), console.progress(), console.work(_NAME, title):
            try:
                results |= _opened(dashboard, closed, user)
            except (NotAttachable, NotReady) as error:
                # Processes that are already open can still be debugged.
                why = Outcome("", NOT_POSSIBLE, error.message)
                results |= {process.worker_id: why for process in closed}
    rows = [(process, results[process.worker_id]) for process in processes]
    documents = [_document(*row) for row in rows]
    _show(console, rows)
    if not any(outcome.result in (_OPEN, OPENED) for _, outcome in rows):
        raise NotAttachable(
            f"of {id} nothing can be debugged now",
            hint="./invokew submit --debug opens a job from its start",
            id=id,
            processes=documents,
        )
    if console.as_json:
        console.document({"id": id, "processes": documents})
    # `debug` needs this option to show the processes if their job belongs to another user.
    job_ids = {process.job_id for process in processes}
    jobs = [job for job in dashboard.jobs() if job.job_id in job_ids] if user else []
    others = next((job for job in jobs if not sees(user, job.user)), None)
    option = f" --job {others.submission_id}" if others else ""
    console.result(f"\nNext: ./invokew debug{option} --break FILE:LINE, or attach an editor")


@contextmanager
def _told(console: Console, title: str) -> Iterator[None]:
    """Announces the work once it takes longer than `_SILENT` seconds."""
    text = f"opening {title}: a job in Ray does that, within {_PATIENCE:g} s at most"
    timer = threading.Timer(_SILENT, console.event, [text])
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _opened(dashboard: Dashboard, processes: Sequence[JobProcess], user: str) -> dict[str, Outcome]:
    """Runs a job that opens debuggers; returns the outcomes by worker id. Raises NotAttachable.

    `user` is this user's name on a shared Ray cluster.
    """
    asked = [
        Process(each.worker_id, each.pid, each.node_id, each.actor_id, each.actor_name, each.namespace, user)
        for each in processes[:_MOST]
    ]
    output = run_module(
        dashboard,
        _NAME,
        "python -m rayside.relay_actor.opening",
        user=user,
        texts={FILE: json.dumps([asdict(process) for process in asked])},
        longest=_PATIENCE,
    )
    try:
        known = outcomes(output)
    except ValueError:
        raise NotAttachable(
            f"the job that opens debuggers failed: {line(output[-_LONGEST:]) or 'it printed nothing'}",
            hint="./invokew status shows what is wrong with the cluster",
        ) from None
    gone = "it has ended, or nothing was said of it"
    return {
        each.worker_id: known.get(each.worker_id, Outcome(each.worker_id, NOT_POSSIBLE, gone))
        for each in processes
    }


def _show(console: Console, rows: Sequence[tuple[JobProcess, Outcome]]) -> None:
    console.table(
        ("process", "node", "pid", "debugger", "why"),
        [
            (f"{process.kind} {process.name}", process.node_ip, str(process.pid), outcome.result, outcome.why)
            for process, outcome in rows
        ],
    )
    for process, outcome in rows:
        if outcome.stack:
            console.result(f"\nWhere {process.kind} {line(process.name)} (process {process.pid}) is now:")
            for text in _of_program(outcome.stack).splitlines():
                console.result(line(text) if text.strip() else "")


def _of_program(stack: str) -> str:
    """Returns py-spy's text without its header, and without threads that run only Ray's code."""
    threads = re.findall(r"^Thread .*(?:\n +.*)*", stack, re.MULTILINE)
    return "\n".join(each for each in threads if re.search(_PROGRAM, each, re.MULTILINE)) or stack


def _document(process: JobProcess, outcome: Outcome) -> dict[str, Any]:
    names = ("worker_id", "pid", "node_ip", "job_id", "kind", "name", "actor_id")
    became = {"result": outcome.result, "why": outcome.why, "stack": outcome.stack}
    return {**{name: getattr(process, name) for name in names}, **became}
