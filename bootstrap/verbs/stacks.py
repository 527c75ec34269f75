"""Does `debug --stacks`: shows what all processes of a job do now, and stops none of them."""

from __future__ import annotations

from bootstrap.settings import Settings
from bootstrap.verbs.of_job import ask_of_job, show
from rayside.console import Console
from rayside.dap.drawn_stacks import drawn


def stacks(settings: Settings, console: Console, *, job: str | None, everyone: bool = False) -> None:
    """Shows the stacks of a job's processes, merged to a tree; of the newest job if none is named.

    Raises as `ask_of_job`.
    """
    job, answer = ask_of_job(settings, console, "stacks", job=job, everyone=everyone, what="stacks")
    show(console, job, answer, drawn)
