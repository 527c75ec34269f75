"""Turns a debuggee's tracing off and on: expressions for DAP's `evaluate`, with Ray's hook or without.

The functions are the hook's own (bootstrap/hook/rayside_hook/tracing.py), whose text is sent along.
They are harmless in every process that debugpy is in, on every Python, however often they are sent.
"""

from __future__ import annotations

from pathlib import Path

from bootstrap.hook import rayside_hook
from bootstrap.relay.sent import Sent

_TRACING = Sent("_rayside_tracing", Path(rayside_hook.__file__).with_name("tracing.py"))

# Both are evaluated without a frame, in the context QUIETLY. SLEEP lets all code run at full speed that is
# not stopped or being stepped; `breakpoint()` still stops. WAKE has to come before breakpoints, the exception
# filters `raised` and `userUnhandled`, and `pause`, where the process has no hook.
SLEEP, WAKE = _TRACING.first_call("sleep"), _TRACING.first_call("wake")
