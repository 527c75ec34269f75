"""Attachment of the terminal debugger to the relay, with a prompt if another debugger has the tasks."""

from __future__ import annotations

from dataclasses import replace

from rayside.client.session import AttachOptions, JobWatch, Session
from rayside.console import Console
from rayside.dap.additions import ALWAYS, WATCH
from rayside.errors import DebuggerBusy
from rayside.event_loop import Call


def attached(options: AttachOptions, watch: JobWatch, console: Console, call: Call) -> Session:
    """Attaches; asks the user if another debugger has the tasks. Raises DebuggerBusy if it keeps them."""
    session = Session(options, watch)
    try:
        call(session.start())
    except DebuggerBusy as busy:
        answer = console.ask(f"{busy.message}. Take over (y), watch (w), or leave it (n)? ")
        take_over = {"y": ALWAYS, "w": WATCH}.get(answer.strip().lower()[:1])
        if take_over is None:
            raise
        session = Session(replace(options, take_over=take_over), watch)
        call(session.start())
    return session
