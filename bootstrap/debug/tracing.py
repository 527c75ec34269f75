"""Turns a debuggee's tracing off and on: expressions for DAP's `evaluate`, with Ray's hook or without.

The functions are the hook's own (bootstrap/ray/hook/rayside_hook/tracing.py), whose text is sent along.
Harmless in every process that debugpy is in, on every Python, however often they are sent.
"""

from __future__ import annotations

from pathlib import Path

_TEXT = (Path(__file__).parent.parent / "ray" / "hook" / "rayside_hook" / "tracing.py").read_text()


def _call(function: str) -> str:
    # In a namespace of its own: `evaluate` would otherwise leave the names in the user's __main__.
    code = (
        "import sys, types\n"
        "module = sys.modules.get('_rayside_tracing')\n"
        "if module is None:\n"
        "    module = sys.modules['_rayside_tracing'] = types.ModuleType('_rayside_tracing')\n"
        f"    exec(compile({_TEXT!r}, '<rayside tracing>', 'exec'), module.__dict__)\n"
        f"module.{function}()\n"
    )
    return f"exec({code!r}, {{}})"


# To be evaluated without a frame, in the context QUIETLY. SLEEP lets all code run at full speed that is not
# stopped or being stepped; `breakpoint()` still stops. WAKE has to come before breakpoints, the exception
# filters `raised` and `userUnhandled`, and `pause`, where the process has no hook.
SLEEP, WAKE = _call("sleep"), _call("wake")
