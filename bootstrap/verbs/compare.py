"""Does `debug --compare`: shows what an expression gives in all tasks of a job that are stopped."""

from __future__ import annotations

from bootstrap.settings import Settings
from bootstrap.verbs.of_job import ask_of_job, show
from rayside.console import Console
from rayside.dap.drawn_values import drawn
from rayside.dap.expressions import refusal_of
from rayside.errors import InvalidArgument, NothingPaused


def compare(
    settings: Settings, console: Console, expression: str, *, job: str | None, everyone: bool = False
) -> None:
    """Shows an expression's values in the stopped tasks of a job, grouped; of the newest if none is named.

    Raises:
        InvalidArgument: it is no expression; nobody was asked.
        NothingPaused: no task of the job is stopped in a debugger.
        NotRunning, RequestFailed: as `ask_of_job`.
    """
    if problem := refusal_of(expression):
        raise InvalidArgument(f"--compare: {problem}", hint="as in --compare 'loss' or --compare 'len(rows)'")
    job, answer = ask_of_job(
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
    show(console, job, answer, drawn)
