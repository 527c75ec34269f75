"""Hooks that Ray runs inside a driver's `ray.init`: the environment variable RAY_RUNTIME_ENV_HOOK names one.

It sees the driver's runtime_env, with a submitted job's merged into it, and may change it. A driver that
nobody submitted (`python -m rayside.worker`, a notebook, a Python prompt) calls `debug` first. It needs
debugpy in the cluster's environment; docs/hook.md says how a runtime_env brings it.
"""

from __future__ import annotations

import json
import os
import sys
import uuid
from pathlib import Path
from typing import Any

from . import attach, handshake, ray_process
from .debug_config import VARIABLE, Config, change, forget, with_package

_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
_HOOK, _OVERRIDE = "RAY_RUNTIME_ENV_HOOK", "RAY_OVERRIDE_JOB_RUNTIME_ENV"
OURS = (_HOOK, _OVERRIDE, VARIABLE)
_BY_HAND = f"{__package__}.driver.on_init_by_hand"
_POST_MORTEM = "RAY_DEBUG_POST_MORTEM"


def on_init(runtime_env: dict[str, Any]) -> dict[str, Any]:
    """Returns the runtime_env for the workers. Raises ValueError where the job's and the driver's contradict.

    The user's own fields are as without a debugger, and the workers get this package besides; what was added
    to send it is gone again from a second `ray.init` and from other programs that this one starts.
    """
    job = dict(json.loads(os.environ[_JOB])["runtime_env"] or {})
    modules = [*(job.get("py_modules") or [])]
    hook_modules = modules[-1:]
    try:
        config = Config.read()
    except ValueError as error:
        _forget(hook_modules)
        attach.say(f"no debugger in this job: {error}")
        return runtime_env
    _refuse_contradictions(runtime_env, job, config)
    # These are what workers need: the debugger's, if any, and this package.
    carried = modules[-1 - config.carried :]
    _forget(hook_modules)
    try:
        cleaned = _without(dict(runtime_env), hook_modules)
        if carried:
            others = [module for module in cleaned.get("py_modules") or [] if module not in carried]
            cleaned = {**cleaned, "py_modules": [*others, *carried]}
        for requirement in config.requirements:
            cleaned = with_package(cleaned, requirement)
        return hooked(cleaned, config)
    except Exception as error:
        attach.say(f"no debugger in this job: {type(error).__name__}: {error}")
        return runtime_env


def debug(attach_timeout: float = 0.0, *, post_mortem: bool = False) -> None:
    """Makes the next `ray.init` of this program open a debugger in it, and in each worker of its job.

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
    if os.environ.get(_HOOK, _BY_HAND) != _BY_HAND:
        raise RuntimeError(f"{_HOOK} is {os.environ[_HOOK]!r}: Ray calls one such hook alone")
    os.environ[_HOOK] = _BY_HAND
    change(attach_timeout=attach_timeout)
    if post_mortem:
        os.environ[_POST_MORTEM] = "1"


def on_init_by_hand(runtime_env: dict[str, Any] | None) -> dict[str, Any]:
    """Returns the runtime_env for the workers: the driver's own, with our setup hook."""
    own = dict(runtime_env or {})
    names = _POST_MORTEM, handshake.USER_VARIABLE
    variables = {name: os.environ[name] for name in names if name in os.environ}
    changed = {
        **own,
        "env_vars": {**variables, **(own.get("env_vars") or {})},
        # The relay calls it in the workers.
        "py_modules": [*(own.get("py_modules") or []), str(Path(__file__).parents[1])],
    }
    try:
        return hooked(changed, Config(attach_timeout=Config.read().attach_timeout))
    except Exception as error:
        attach.say(f"no debugger in this job: {type(error).__name__}: {error}")
        return own
    finally:
        # Programs that this one starts may not have this package.
        os.environ.pop(_HOOK, None)
        forget()


def hooked(runtime_env: dict[str, Any], config: Config) -> dict[str, Any]:
    """Returns the runtime_env with our setup hook; this driver opens its port at the end of `ray.init`."""
    import ray
    import ray._private.worker

    ray.cloudpickle.register_pickle_by_value(sys.modules[__package__])
    job = uuid.uuid4().hex

    def connected() -> None:
        ray_process.open(config, job, announces=True)

    ray._private.worker._post_init_hooks.append(connected)
    theirs = runtime_env.get("worker_process_setup_hook")
    worker = Config(attach_timeout=config.attach_timeout)
    ours = ray_process.hook(theirs, worker, job, by_driver=handshake.metadata())
    return {**runtime_env, "worker_process_setup_hook": ours}


def _refuse_contradictions(merged: dict[str, Any], job: dict[str, Any], config: Config) -> None:
    """Refuses what Ray itself refuses, but not fields that only we have set: the driver may set those."""
    env_vars = job.get("env_vars") or {}
    wrong = [field for field in config.given if merged.get(field) != job.get(field)]
    theirs = merged.get("env_vars") or {}
    wrong += [name for name in config.given_env_vars if theirs.get(name) != env_vars.get(name)]
    if wrong:
        raise ValueError(
            f"Failed to merge the Job's runtime env with ray.init's, both have {', '.join(wrong)}. "
            "Use RAY_OVERRIDE_JOB_RUNTIME_ENV=1 to combine them."
        )


def _without(runtime_env: dict[str, Any], hook_modules: list[str]) -> dict[str, Any]:
    modules = [module for module in runtime_env.get("py_modules") or [] if module not in hook_modules]
    env_vars = {
        name: value for name, value in (runtime_env.get("env_vars") or {}).items() if name not in OURS
    }
    cleaned = {**runtime_env, "py_modules": modules, "env_vars": env_vars}
    return {field: value for field, value in cleaned.items() if value not in ([], {})}


def _forget(hook_modules: list[str]) -> None:
    for name in (_HOOK, _OVERRIDE):
        os.environ.pop(name, None)
    forget()
    job = json.loads(os.environ[_JOB])
    job["runtime_env"] = _without(job["runtime_env"] or {}, hook_modules)
    os.environ[_JOB] = json.dumps(job)
