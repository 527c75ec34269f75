"""Lists the tasks that stand still: those that wait for a debugger, and those that the relay holds."""

from __future__ import annotations

import re
from typing import Any

from bootstrap import step
from bootstrap.dap.exchange import ask
from bootstrap.errors import DebuggerGone, RequestFailed
from bootstrap.ray.state import LAG, PausedTask
from bootstrap.targets.target import Target


def paused(target: Target) -> list[PausedTask]:
    """Returns the tasks that stand still now, once Ray can name those that wait. Raises as `Access.require`.

    Ray lists only what no debugger is attached to, the relay only what it is attached to. A relay that
    does not answer holds nothing.
    """
    dashboard = target.access.require()
    waiting = step.until(dashboard.paused, lambda tasks: all(task.task for task in tasks), patience=LAG)
    held = [_held(task) for task in _relay(target)]
    # A worker may be in both while a debugger attaches.
    workers = {task.worker_id for task in held}
    tasks = [*held, *(task for task in waiting if task.worker_id not in workers)]
    # Within a second the relay's tasks come first, in the order of their stops, which it knows exactly.
    return sorted(tasks, key=lambda task: task.since)


def _relay(target: Target) -> list[dict[str, Any]]:
    token = target.instance.token_file.read_text()
    try:
        return list(ask(target.instance.ports.relay, "pausedTasks", {"token": token})["tasks"])
    except (DebuggerGone, RequestFailed):  # `status` reports that.
        return []


def _held(task: dict[str, Any]) -> PausedTask:
    names = ("worker_id", "node_ip", "pid", "job_id", "task", "since")
    # Its port is the relay's alone. Ray's times are of whole seconds, too.
    since = re.sub(r"\.[0-9]+", "", task["since"])
    return PausedTask(**{**{name: task[name] for name in names}, "since": since}, host="", port=0, held=True)
