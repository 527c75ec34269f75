"""Lists the tasks that are paused: those that sessions hold, and those that wait for a debugger."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from bootstrap.dap.paused import PausedTask
from bootstrap.errors import RaysideError
from bootstrap.relay.debuggee import Debuggee
from bootstrap.relay.discovery import Discovery
from bootstrap.relay.lookout import Lookout
from bootstrap.relay.worker import Worker
from bootstrap.users import sees

# Seconds for Ray's answer to which tasks wait for a debugger.
_LOOK = 5.0


async def paused_tasks(discovery: Discovery, lookout: Lookout, *, everyone: bool) -> dict[str, Any]:
    """Returns the body of the answer to `pausedTasks`.

    Returns:
        `{"tasks": [a row each, the longest paused first], "problem": why some are not known, or empty,
        "hidden": the number of those that are other people's}`; with `everyone` none is hidden.
    """
    waiting, problem = await _waiting(discovery)
    workers = [worker for session in lookout.sessions for worker in session.workers.attached]
    held = [worker.described_at(thread).paused() for worker in workers for thread in sorted(worker.stops)]
    # A worker may be in both while a debugger attaches.
    held_workers = {task.worker_id for task in held}
    others = [lookout.named(task) for task in waiting if task.worker_id not in held_workers]
    shown = [task for task in others if everyone or sees(lookout.user, task.user)]
    rows = [task.row() for task in sorted([*held, *shown], key=_order)]
    return {"tasks": rows, "problem": problem, "hidden": len(others) - len(shown)}


async def waiting_debuggees(
    discovery: Discovery, lookout: Lookout, is_for: Callable[[Debuggee], bool]
) -> list[Debuggee]:
    """Returns those whose tasks wait for a debugger, and are attached to by nobody; none if Ray is silent."""
    known, (tasks, _) = await asyncio.gather(_known(lookout), _waiting(discovery))
    worker_ids = {task.worker_id for task in tasks}
    return [
        debuggee
        for debuggee in known
        if debuggee.shown_id in worker_ids and is_for(debuggee) and not _is_attached(lookout.held(debuggee))
    ]


def _is_attached(worker: Worker | None) -> bool:
    return worker is not None and worker.is_attached


async def _known(lookout: Lookout) -> list[Debuggee]:
    with suppress(asyncio.TimeoutError, RaysideError):
        return await asyncio.wait_for(lookout.known(), _LOOK)
    return []


async def _waiting(discovery: Discovery) -> tuple[list[PausedTask], str]:
    """Returns the tasks that wait for a debugger, and why they are not known, if they are not."""
    try:
        return await asyncio.wait_for(discovery.waiting(), _LOOK), ""
    except asyncio.TimeoutError:
        return [], f"Ray did not answer within {_LOOK:g} s"
    except RaysideError as error:
        return [], error.message


def _order(task: PausedTask) -> tuple[str, bool, str, str]:
    # Ray's moments are of whole seconds. Within one the held come first, in the order of their stops.
    return task.since[: len("2026-01-01T00:00:00")], not task.held, task.since, task.worker_id
