"""Runtime_env for the config of a Ray Serve application.

A config takes addresses and no folders, and Ray has setup hooks for whole jobs alone: the field has no effect
there, as in any actor's `runtime_env`. But a worker itself finds its hook in a variable
(`load_and_execute_setup_hook` in ray/_private/runtime_env/setup_hook.py, 2.60).
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bootstrap.steps.own_job import package
from rayside.ray.state import Dashboard

_VARIABLE = "__RAY_WORKER_PROCESS_SETUP_HOOK_ENV_VAR"


def for_serve(runtime_env: Mapping[str, Any], dashboard: Dashboard) -> dict[str, Any]:
    """Returns it with its folders uploaded to that Ray, and its setup hook where workers find it.

    Raises NotRunning.
    """
    env = dict(runtime_env)
    hook = env.pop("worker_process_setup_hook")
    modules = [
        _uploaded(Path(module), dashboard) if Path(module).is_dir() else module
        for module in env["py_modules"]
    ]
    return {**env, "py_modules": modules, "env_vars": {**env["env_vars"], _VARIABLE: hook}}


def _uploaded(folder: Path, dashboard: Dashboard) -> str:
    """Uploads a package's own folder, as Ray has one of `py_modules`; returns its address."""
    with tempfile.TemporaryDirectory(prefix="rayside-") as around:
        shutil.copytree(folder, Path(around, folder.name), ignore=shutil.ignore_patterns("__pycache__"))
        return dashboard.upload(package(Path(around)))
