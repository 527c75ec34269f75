"""Debugs the job of a driver that nobody submitted: `python -m rayside.worker`, a notebook, a Python prompt.

Ray calls `on_init` inside `ray.init`, as the environment variable RAY_RUNTIME_ENV_HOOK names it. debugpy has
to be in the cluster's environment; docs/hook.md says how a runtime_env brings it.
"""

from __future__ import annotations

import math
import os
import pathlib
import sys
from typing import Any

from . import attach, driver, whose

_VARIABLE, _HOOK = "RAY_RUNTIME_ENV_HOOK", f"{__package__}.by_hand.on_init"
_TIMEOUT, _POST_MORTEM = "RAYSIDE_ATTACH_TIMEOUT", "RAY_DEBUG_POST_MORTEM"


def debug(attach_timeout: float = 0.0, *, post_mortem: bool = False) -> None:
    """Has the next `ray.init` of this program open a debugger in it, and in each worker of its job.

    Args:
        attach_timeout: the seconds for which they wait for a debugger; with 0 they don't.
        post_mortem: whether a task that fails stops there.

    Raises:
        RuntimeError: where `ray.init` was called before, or a hook of the user's own is set.
    """
    if "ray" in sys.modules and sys.modules["ray"].is_initialized():
        raise RuntimeError(
            "ray.init() was called before: call ray.shutdown(), then this, then ray.init() again"
        )
    if os.environ.get(_VARIABLE, _HOOK) != _HOOK:
        raise RuntimeError(f"{_VARIABLE} is {os.environ[_VARIABLE]!r}: Ray calls one such hook alone")
    os.environ |= {_VARIABLE: _HOOK, _TIMEOUT: f"{attach_timeout:g}"}
    if post_mortem:
        os.environ[_POST_MORTEM] = "1"


def on_init(runtime_env: dict[str, Any] | None) -> dict[str, Any]:
    """Returns the runtime_env for the workers: the driver's own, and our hook. Ray calls it in `ray.init`."""
    timeout = float(os.environ.pop(_TIMEOUT, "0"))
    # Programs that this one starts may not have this package.
    os.environ.pop(_VARIABLE, None)
    own = dict(runtime_env or {})
    variables = {name: os.environ[name] for name in (_POST_MORTEM, whose.USER_VARIABLE) if name in os.environ}
    hooked = {
        **own,
        "env_vars": {**variables, **(own.get("env_vars") or {})},
        # The relay calls it in the workers.
        "py_modules": [*(own.get("py_modules") or []), str(pathlib.Path(__file__).parent.parent)],
    }
    try:
        return driver.hooked(hooked, timeout, math.inf)
    except Exception as error:
        attach.say(f"no debugger in this job: {type(error).__name__}: {error}")
        return own
