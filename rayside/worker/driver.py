"""Ray runs this in a job's driver, inside `ray.init`: the environment variable RAY_RUNTIME_ENV_HOOK names it.

It sees the job's runtime_env merged with the driver's own, and may change it.
"""

from __future__ import annotations

import json
import os
import sys
import uuid
from typing import Any

from . import attach, packages, setup_hook, whose
from .scout import STARTED

OURS = (
    "RAY_RUNTIME_ENV_HOOK",
    "RAY_OVERRIDE_JOB_RUNTIME_ENV",
    "RAYSIDE_ATTACH_TIMEOUT",
    "RAYSIDE_CARRIED",
    "RAYSIDE_GIVEN",
    "RAYSIDE_PIP",
    STARTED,
)
_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"


def on_init(runtime_env: dict[str, Any]) -> dict[str, Any]:
    """Returns the runtime_env for the workers. Raises ValueError where the job's and the driver's contradict.

    The user's own fields are as without a debugger, and the workers get this package besides; what was added
    to send it is gone again from a second `ray.init` and from other programs that this one starts.
    """
    requested = os.environ.get("RAYSIDE_GIVEN")
    job = dict(json.loads(os.environ[_JOB])["runtime_env"] or {})
    modules = [*(job.get("py_modules") or [])]
    hook_modules, carried = modules[-1:], _carried(modules)
    if requested is not None:
        _refuse_contradictions(runtime_env, job, json.loads(requested))
    timeout = float(os.environ["RAYSIDE_ATTACH_TIMEOUT"])
    requirements = os.environ.get("RAYSIDE_PIP", "").split()
    waited_until = float(os.environ.get(STARTED, "inf"))
    _forget(hook_modules)
    try:
        cleaned = _without(dict(runtime_env), hook_modules)
        if carried:
            others = [module for module in cleaned.get("py_modules") or [] if module not in carried]
            cleaned = {**cleaned, "py_modules": [*others, *carried]}
        for requirement in requirements:
            cleaned = packages.with_package(cleaned, requirement)
        return hooked(cleaned, timeout, waited_until)
    except Exception as error:
        attach.say(f"no debugger in this job: {type(error).__name__}: {error}")
        return runtime_env


def _carried(modules: list[str]) -> list[str]:
    """Returns the modules that workers need: the debugger's, if any, and this package."""
    count = int(os.environ.get("RAYSIDE_CARRIED", "0"))
    return modules[-1 - count :]


def hooked(runtime_env: dict[str, Any], timeout: float, waited_until: float) -> dict[str, Any]:
    """Returns the runtime_env with our hook for workers; this driver opens a debugger after `ray.init`.

    `timeout` and `waited_until` are those of `attach.wait`.
    """
    import ray
    import ray._private.worker

    ray.cloudpickle.register_pickle_by_value(sys.modules[__package__])
    name = uuid.uuid4().hex
    theirs = runtime_env.get("worker_process_setup_hook")

    def connected() -> None:
        setup_hook.prepare(name, timeout, announce=True, waited_until=waited_until)

    ray._private.worker._post_init_hooks.append(connected)
    hook = setup_hook.hook(name, timeout, theirs, announce=False, by_driver=whose.metadata())
    return {**runtime_env, "worker_process_setup_hook": hook}


def _refuse_contradictions(merged: dict[str, Any], job: dict[str, Any], requested: dict[str, Any]) -> None:
    """Refuses what Ray itself refuses, but not fields that only we have set: the driver may set those."""
    env_vars = job.get("env_vars") or {}
    wrong = [field for field in requested["fields"] if merged.get(field) != job.get(field)]
    wrong += [
        name
        for name in requested["env_vars"]
        if (merged.get("env_vars") or {}).get(name) != env_vars.get(name)
    ]
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
    for name in OURS:
        os.environ.pop(name, None)
    config = json.loads(os.environ[_JOB])
    config["runtime_env"] = _without(config["runtime_env"] or {}, hook_modules)
    os.environ[_JOB] = json.dumps(config)
