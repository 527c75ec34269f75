"""Lists the tasks that stand still, as the relay knows them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from bootstrap import step
from bootstrap.targets.target import Target
from rayside.dap.one_request import ask
from rayside.dap.paused_task import PausedTask
from rayside.errors import DebuggerGone, NotRunning, RequestFailed
from rayside.ray.state import LAG

# Seconds for the relay's answer: it asks Ray, for which it takes up to 5.
_PATIENCE = 8.0


@dataclass(frozen=True)
class Paused:
    """The tasks that stand still; `hidden` others wait for a debugger, which are tasks of other users."""

    tasks: list[PausedTask]
    hidden: int = 0


def paused(target: Target, *, everyone: bool = False) -> Paused:
    """Returns the tasks that stand still now, once Ray can name those that wait.

    Where several people debug on one Ray, they are the user's own, and those of jobs that say no user; with
    `everyone` all of them, but what another's debugger holds.

    Raises:
        NotRunning: Ray or the relay does not answer, or the relay is of an older Rayside; and as
            `Access.require`.
    """
    target.access.require()
    return step.until(
        lambda: _look(target, everyone), lambda seen: all(task.task for task in seen.tasks), patience=LAG
    )


def _look(target: Target, everyone: bool) -> Paused:
    arguments = {"token": target.instance.token_file.read_text(), **({"everyone": True} if everyone else {})}
    try:
        answer = ask(target.instance.ports.relay, "pausedTasks", arguments, timeout=_PATIENCE)
    except DebuggerGone as error:
        answer = {"problem": f"the debug relay's port {target.instance.ports.relay} {error.message}"}
    except RequestFailed as error:
        answer = {"problem": f"the debug relay refused {error.message}"}
    if problem := answer.get("problem", "the debug relay is of an older Rayside"):
        raise NotRunning(str(problem), hint="./invokew up repairs it")
    return Paused([_read(row) for row in answer["tasks"]], int(answer.get("hidden", 0)))


def _read(row: dict[str, Any]) -> PausedTask:
    # Ray's times are of whole seconds.
    return PausedTask(**{**row, "since": re.sub(r"\.[0-9]+", "", row["since"])})
