"""Hooks for a driver's `ray.init`, and the driver's debugger port before that.

Ray calls the hook in the environment variable RAY_RUNTIME_ENV_HOOK in `ray.init`. The hook receives the
driver's runtime_env, merged with the submitted job's, and may change it. A driver that was not submitted
(`python -m rayside.worker`, a notebook, a Python prompt) calls `debug` first. It requires debugpy in the
cluster's environment; docs/internals/hook.md explains how a runtime_env installs it.

start.py calls `begin` at Python's start, before `ray.init`. The driver does not import Ray yet, because the
program may still set variables that Ray reads: a short-lived child process, the scout, talks to Ray (`python
-m rayside.worker.driver`). They exchange lines of JSON over pipes. The scout sends `{"host", "token"}` (the
node's address and Ray's token); receives `{"port", "pid", "latest"}` and writes the first two into the job's
metadata for the relay; sends `{"deadline"}` of the job's wait for a debugger; ends with its pipe, or after it
receives `{"attached"}`. If it fails, it sends `{"error"}`.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from . import attach, handshake
from .debug_config import VARIABLE, Config, change, forget, with_package
from .listener import rays_token

_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
_HOOK, _OVERRIDE = "RAY_RUNTIME_ENV_HOOK", "RAY_OVERRIDE_JOB_RUNTIME_ENV"
OURS = (_HOOK, _OVERRIDE, VARIABLE)
_BY_HAND = f"{__package__}.driver.on_init_by_hand"

_joined: list[Callable[[bool], None]] = []  # the callback that `debug` received, if any
_connected: list[Callable[[], None]] = []  # our latest hook at the end of `ray.init`
_POST_MORTEM = "RAY_DEBUG_POST_MORTEM"
# Prefix of the scout's lines.
_SAYS = "rayside: "
# Timeouts in seconds for a message from the scout (all of them took 0.8 s), and for an answer from Ray.
_PATIENCE, _RAYS_PATIENCE = 15.0, 5
_NAMESPACE = b"rayside"
_FAILURE = "the driver is debugged from ray.init on"
# Like `-m`, which would import from the current folder first: other users may write there.
_RUN = (
    "import sys; sys.path[:] = filter(None, sys.path); import runpy;"
    " runpy.run_module(sys.argv[1], run_name='__main__')"
)


def on_init(runtime_env: dict[str, Any]) -> dict[str, Any]:
    """Returns the runtime_env for the workers. Raises ValueError if the job's and the driver's contradict.

    The user's own fields are unchanged, and the workers also get this package. The additions that sent it are
    removed for a second `ray.init` and for other programs that this one starts.
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
    # Modules for the workers: the debugger's, if any, and this package.
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


def debug(
    attach_timeout: float = 0.0, *, post_mortem: bool = False, joined: Callable[[bool], None] | None = None
) -> None:
    """Makes the next `ray.init` of this program open a debugger in it, and in each worker of its job.

    Args:
        attach_timeout: seconds to wait for a debugger; with 0 the processes don't wait.
        post_mortem: whether a failed task stops at the failure.
        joined: called with True when this process has joined a Ray cluster, and with False when it leaves it.
            With it, each `ray.init` of the program is debugged, also after a `ray.shutdown`.

    Raises:
        RuntimeError: if `ray.init` was called before, or the user's own hook is set.
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
    _joined[:] = [joined] if joined else []


def on_init_by_hand(runtime_env: dict[str, Any] | None) -> dict[str, Any]:
    """Returns the runtime_env for the workers: the driver's own, with our setup hook."""
    own = dict(runtime_env or {})
    names = _POST_MORTEM, handshake.USER_VARIABLE
    variables = {name: os.environ[name] for name in names if name in os.environ}
    changed = {
        **own,
        "env_vars": {**variables, **(own.get("env_vars") or {})},
        # The relay calls this package in the workers.
        "py_modules": [*(own.get("py_modules") or []), str(Path(__file__).parents[1])],
    }
    config = Config()
    try:
        given = Config.read()
        config = Config(given.attach_timeout, quiet=bool(_joined), waited_until=given.waited_until)
        return hooked(changed, config)
    except Exception as error:
        attach.say(f"no debugger in this job: {type(error).__name__}: {error}")
        return own
    finally:
        # Programs that this one starts may lack this package.
        os.environ.pop(_HOOK, None)
        forget()
        if _joined:
            _debug_again(config)


def _debug_again(config: Config) -> None:
    """Hooks the next `ray.shutdown`, so that the following `ray.init` is debugged as well."""
    import ray._private.worker as ray

    leave = ray.disconnect

    def disconnect(*arguments: Any, **more: Any) -> None:
        for joined in _joined:
            joined(False)
        leave(*arguments, **more)
        ray.disconnect = leave
        os.environ[_HOOK] = _BY_HAND
        change(attach_timeout=config.attach_timeout, waited_until=config.waited_until)

    ray.disconnect = disconnect


def hooked(runtime_env: dict[str, Any], config: Config) -> dict[str, Any]:
    """Returns the runtime_env with our setup hook; this driver opens its port at the end of `ray.init`."""
    import ray
    import ray._private.worker

    ray.cloudpickle.register_pickle_by_value(sys.modules[__package__])
    job = secrets.token_hex(16)

    def connected() -> None:
        for joined in _joined:
            joined(True)
        attach.open_in_ray(config, job, announces=True)

    hooks = ray._private.worker._post_init_hooks
    hooks[:] = [*(hook for hook in hooks if hook not in _connected), connected]
    _connected[:] = [connected]
    theirs = runtime_env.get("worker_process_setup_hook")
    names = ("attach_timeout", "quiet", "waited_until", "record_failures", "masked_names", "masked_values")
    worker = Config(**{name: getattr(config, name) for name in names})
    ours = attach.hook(theirs, worker, job, by_driver=handshake.metadata())
    return {**runtime_env, "worker_process_setup_hook": ours}


def _refuse_contradictions(merged: dict[str, Any], job: dict[str, Any], config: Config) -> None:
    """Raises Ray's ValueError for contradictions, except in fields that only Rayside has set."""
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


# --- before `ray.init` ---------------------------------------------------------------------


def begin() -> None:
    """Opens the port, publishes it, and waits for a debugger up to `--attach-timeout`; never raises.

    With 0, `ray.init` opens the port instead. It also reports missing debugpy or a malformed configuration.
    """
    try:
        config = Config.read()
    except ValueError:
        return
    if config.attach_timeout <= 0:
        return
    command = [sys.executable, "-c", _RUN, __name__]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    failure: object = "interrupted"
    try:
        with subprocess.Popen(command, text=True, **pipes) as scout:  # type: ignore[call-overload]
            try:
                failure = _open_early(config, scout)
            finally:
                if failure is not None:
                    scout.kill()
    except Exception as error:
        attach.say(f"{_FAILURE}: {type(error).__name__}: {error}")


def _open_early(config: Config, scout: subprocess.Popen[str]) -> Exception | None:
    deadline = 0.0

    def address() -> Mapping[str, Any]:  # called after debugpy is loaded, while the scout imports Ray
        ray = _line(scout)
        return {"host": ray["host"], "token": ray["token"].encode()}

    def publish(port: int) -> None:
        nonlocal deadline
        latest = time.time() + config.attach_timeout
        _tell(scout, {"port": port, "pid": os.getpid(), "latest": latest})
        deadline = float(_line(scout)["deadline"])

    def wait() -> None:
        import debugpy

        latest = min(deadline, time.time() + config.attach_timeout)
        attach.until_attached(lambda: time.time() >= deadline, config.attach_timeout)
        if debugpy.is_client_connected():
            _tell(scout, {"attached": True})
        else:
            change(waited_until=latest)

    return attach.open_port(address, publish, wait, failure=_FAILURE)


def _line(scout: subprocess.Popen[str]) -> dict[str, Any]:
    """Returns the scout's next message. Raises RuntimeError if the scout fails, or after a timeout."""
    assert scout.stdout is not None
    too_long = threading.Timer(_PATIENCE, scout.kill)
    too_long.daemon = True
    too_long.start()
    try:
        # Skips other output of Python's start.
        text = next((line for line in scout.stdout if line.startswith(_SAYS)), "").removeprefix(_SAYS)
    finally:
        too_long.cancel()
    answer: dict[str, Any] = json.loads(text or '{"error": "Ray gave no answer"}')
    if "error" in answer:
        raise RuntimeError(answer["error"])
    return answer


def _tell(scout: subprocess.Popen[str], message: Mapping[str, Any]) -> None:
    assert scout.stdin is not None
    scout.stdin.write(json.dumps(message) + "\n")
    scout.stdin.flush()


# --- in the scout --------------------------------------------------------------------------------


def _scout() -> None:
    try:
        _serve()
    except Exception as error:
        _say({"error": f"{type(error).__name__}: {error}"})


def _serve() -> None:
    from ray._private.ray_constants import KV_NAMESPACE_JOB
    from ray._raylet import GcsClient
    from ray.dashboard.modules.job.common import JobInfoStorageClient

    job = json.loads(os.environ["RAY_JOB_CONFIG_JSON_ENV_VAR"])["metadata"]["job_submission_id"]
    key = JobInfoStorageClient.JOB_DATA_KEY.format(job_id=job).encode()
    gcs = GcsClient(address=os.environ["RAY_ADDRESS"])
    node = json.loads(gcs.internal_kv_get(key, namespace=KV_NAMESPACE_JOB, timeout=_RAYS_PATIENCE))[
        "driver_node_id"
    ]
    nodes = gcs.get_all_node_info(timeout=_RAYS_PATIENCE)
    hosts = {each.node_id.hex(): each.node_manager_address for each in nodes.values()}
    _say({"host": hosts[node], "token": rays_token().decode()})

    process = _received()
    # Read again before the write: nothing else writes it while the driver waits for this.
    info = json.loads(gcs.internal_kv_get(key, namespace=KV_NAMESPACE_JOB, timeout=_RAYS_PATIENCE))
    if info["status"] != "RUNNING":
        raise RuntimeError(f"the job is {info['status']}")
    driver = json.dumps({"port": process["port"], "pid": process["pid"]})
    info["metadata"] = {**(info.get("metadata") or {}), handshake.DRIVER: driver}
    gcs.internal_kv_put(
        key, json.dumps(info).encode(), overwrite=True, namespace=KV_NAMESPACE_JOB, timeout=_RAYS_PATIENCE
    )

    # One deadline for all programs that an entrypoint runs in sequence, instead of a wait for each.
    deadline_key = f"{job}/early".encode()
    latest = repr(process["latest"]).encode()
    gcs.internal_kv_put(deadline_key, latest, overwrite=False, namespace=_NAMESPACE, timeout=_RAYS_PATIENCE)
    deadline = gcs.internal_kv_get(deadline_key, namespace=_NAMESPACE, timeout=_RAYS_PATIENCE)
    _say({"deadline": float(deadline)})

    if _received().get("attached"):
        forever = repr(math.inf).encode()
        gcs.internal_kv_put(
            deadline_key, forever, overwrite=True, namespace=_NAMESPACE, timeout=_RAYS_PATIENCE
        )


def _received() -> dict[str, Any]:
    return dict(json.loads(sys.stdin.readline() or "{}"))


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(f"{_SAYS}{json.dumps(message)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _scout()
    os._exit(0)  # Ray's threads need not end.
