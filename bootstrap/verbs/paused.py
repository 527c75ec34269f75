"""Lists the tasks that stand still, as the relay knows them."""

from __future__ import annotations

import re
from typing import Any

from bootstrap import step
from bootstrap.dap.exchange import ask
from bootstrap.dap.paused import PausedTask
from bootstrap.errors import DebuggerGone, NotRunning, RequestFailed
from bootstrap.ray.state import LAG
from bootstrap.targets.target import Target

# Seconds for the relay's answer: it asks Ray, for which it takes up to 5.
_PATIENCE = 8.0


def paused(target: Target) -> list[PausedTask]:
    """Returns the tasks that stand still now, once Ray can name those that wait.

    Raises:
        NotRunning: Ray or the relay does not answer, or the relay is of an older Rayside; and as
            `Access.require`.
    """
    target.access.require()
    return step.until(lambda: _tasks(target), lambda tasks: all(task.task for task in tasks), patience=LAG)


def _tasks(target: Target) -> list[PausedTask]:
    token = target.instance.token_file.read_text()
    try:
        answer = ask(target.instance.ports.relay, "pausedTasks", {"token": token}, timeout=_PATIENCE)
    except DebuggerGone as error:
        answer = {"problem": f"the debug relay's port {target.instance.ports.relay} {error.message}"}
    except RequestFailed as error:
        answer = {"problem": f"the debug relay refused {error.message}"}
    if problem := answer.get("problem", "the debug relay is of an older Rayside"):
        raise NotRunning(str(problem), hint="./invokew up mends it")
    return [_read(row) for row in answer["tasks"]]


def _read(row: dict[str, Any]) -> PausedTask:
    # Ray's times are of whole seconds.
    return PausedTask(**{**row, "since": re.sub(r"\.[0-9]+", "", row["since"])})
