"""Errors of a session that has no relay, or no tasks, with the one thing to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rayside.dap.additions import DEBUGGER_LEFT, FORWARD_ENDED, RELAY_GONE, TAKEN_OVER, WAY_LOST
from rayside.errors import ConnectionLost, DebuggerBusy, DebuggerGone, NotRunning, RaysideError
from rayside.plain import line

_WAY = {WAY_LOST: "it was looked for in vain", FORWARD_ENDED: "the forward to it has ended"}


def error_of(reason: str | None) -> RaysideError:
    """Returns the error of a session that was ended for this reason, which is in the `terminated` event."""
    if reason in _WAY:
        hint = "./invokew status shows what is there; then ./invokew debug attaches again"
        return ConnectionLost(f"the connection to the cluster is lost: {_WAY[reason]}", hint=hint)
    if reason == RELAY_GONE:
        return relay_gone("the cluster is there without it")
    if reason == TAKEN_OVER:
        hint = "what was stopped is stopped there now; ./invokew debug takes it back"
        return DebuggerGone("another debugger has taken over", hint=hint)
    if reason == DEBUGGER_LEFT:
        hint = "./invokew debug attaches in its place"
        return DebuggerGone("the debugger that was watched has left", hint=hint)
    return relay_gone("it was ended")


def relay_gone(why: str) -> NotRunning:
    return NotRunning(f"the debug relay has gone: {why}", hint="./invokew up brings it up again")


def busy(ray: Mapping[str, Any]) -> DebuggerBusy:
    """Returns the error of an `attach` that was refused for another debugger; `ray` is the relay's answer."""
    who = line(str(ray.get("client") or "another debugger"))
    return DebuggerBusy(
        f"{who} has debugged these tasks since {line(str(ray.get('since')))}",
        hint="./invokew debug --job takes another job; end that one, or answer `y` to take over",
    )
