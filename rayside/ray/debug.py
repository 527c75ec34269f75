"""Additions to a job's runtime_env that make its processes open a debugger port: `submit --debug`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import rayside
from rayside import versions
from rayside.errors import InvalidArgument
from rayside.options import seconds
from rayside.worker.debug_config import VARIABLE, Config, with_package

_OVERRIDE = "RAY_OVERRIDE_JOB_RUNTIME_ENV"
_PACKAGE = Path(rayside.__file__).parent
# The debugger's packages; without bytecode it works, but breakpoints cost more (ADR 35).
REQUIREMENTS = f"debugpy=={versions.DEBUGPY}", f"bytecode=={versions.BYTECODE}"
DAY = 86_400
# Time limits of Ray's libraries that a stopped task would exceed, each raised to a day; by the file in Ray's
# package, of 2.60. docs/internals/hook.md has their defaults. A test looks for new ones.
_SECONDS = {
    "dag/context.py": [f"RAY_CGRAPH_{what}_timeout" for what in ("submit", "get", "teardown")],
    "data/context.py": [
        "RAY_DATA_EXECUTION_NO_PROGRESS_TIMEOUT_S",
        "RAY_DATA_HASH_SHUFFLE_REDUCE_GET_TIMEOUT_S",
    ],
    "llm/_internal/serve/constants.py": [
        "RAYLLM_ENGINE_START_TIMEOUT_S",
        "RAY_SERVE_LLM_DEFAULT_HEALTH_CHECK_TIMEOUT_S",
        "RAY_SERVE_LLM_ROUTER_HTTP_TIMEOUT",
    ],
    "serve/_private/constants.py": [
        "RAY_SERVE_DEPLOYMENT_ACTOR_HEALTH_CHECK_TIMEOUT_S",
        "RAY_SERVE_HAPROXY_INGRESS_REQUEST_ROUTER_TIMEOUT_S",
        "RAY_SERVE_HAPROXY_TIMEOUT_CLIENT_S",
        "RAY_SERVE_USER_HEALTH_CHECK_PROBE_TIMEOUT_S",
    ],
    "train/constants.py": ["TRAIN_PLACEMENT_GROUP_TIMEOUT_S"],
    "train/v2/_internal/constants.py": [
        "RAY_TRAIN_NCCL_RAS_CONFIRM_DURATION_S",
        "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S",
        "RAY_TRAIN_WORKER_HEALTH_CHECK_TIMEOUT_S",
    ],
    "tune/constants.py": ["TUNE_FORCE_TRIAL_CLEANUP_S", "TUNE_FUNCTION_THREAD_TIMEOUT_S"],
}
_MILLISECONDS = {"util/collective/collective.py": ["collective_gloo_timeout"]}

SOURCES = {**_SECONDS, **_MILLISECONDS}
RAISED = {name: f"{DAY}" for names in _SECONDS.values() for name in names}
RAISED |= {name: f"{DAY * 1000}" for names in _MILLISECONDS.values() for name in names}


@dataclass(frozen=True)
class Debug:
    """Options of a job whose processes open a debugger port; see docs/internals/hook.md.

    `attach_timeout`: seconds to wait for a debugger; 0 doesn't wait. `pip_debugpy`: whether the job's
    environment has to install debugpy. `record_failures`: whether a task that fails with no debugger there
    leaves a capsule, and `masked` the settings `masked_names` and `masked_values` for that. `packages`:
    local folders of debugpy's packages, to send with the job to workers that may lack them; empty if the
    workers have them.
    """

    attach_timeout: float = 60.0
    post_mortem: bool = False
    pip_debugpy: bool = False
    record_failures: bool = False
    masked: tuple[str, str] = ("", "")
    packages: tuple[str, ...] = ()

    def added_to(self, runtime_env: dict[str, Any], *, driver: bool) -> dict[str, Any]:
        """Returns the runtime_env with the package and its variables; the user's own fields are kept.

        With `driver`, Ray calls `on_init` of worker/driver.py in the driver, which sends a setup hook to the
        workers. Otherwise the workers import `setup` of worker/attach.py themselves.
        """
        env_vars = dict(runtime_env.get("env_vars") or {})
        setup_hook = runtime_env.get("worker_process_setup_hook")
        changed = dict(runtime_env)
        if self.pip_debugpy:
            for requirement in REQUIREMENTS:
                changed = with_package(changed, requirement)
        changed["py_modules"] = [*(runtime_env.get("py_modules") or []), *self._carried, str(_PACKAGE)]
        names, values = self.masked if self.record_failures else ("", "")
        config = Config(self.attach_timeout, False, self.record_failures, names, values)
        hook_vars = {"RAY_DEBUG_POST_MORTEM": "1"} if self.post_mortem else {}
        if not driver:
            changed["worker_process_setup_hook"] = "rayside.worker.attach.setup"
            config = replace(config, setup_hook=setup_hook or "")
        else:
            hook_vars["RAY_RUNTIME_ENV_HOOK"] = "rayside.worker.driver.on_init"
            requirements = REQUIREMENTS if self.pip_debugpy else ()
            config = replace(config, requirements=requirements, carried=len(self._carried))
            if _OVERRIDE not in env_vars:
                # Fields that are added here must not contradict what the driver says in ray.init; `on_init`
                # refuses the user's own contradictions.
                hook_vars[_OVERRIDE] = "1"
                given = tuple(sorted({*runtime_env, "working_dir"} - {"env_vars"}))
                config = replace(config, given=given, given_env_vars=tuple(sorted(env_vars)))
        hook_vars[VARIABLE] = config.text()
        changed["env_vars"] = {**RAISED, **env_vars, **hook_vars}
        return changed

    @property
    def _carried(self) -> list[str]:
        """Returns the folders of debugpy's packages that go with the job."""
        return [] if self.pip_debugpy else [*self.packages]


def debugging(
    debug: bool,
    *,
    post_mortem: bool,
    attach_timeout: float | str | None,
    pip_debugpy: bool,
    record_failures: bool = False,
    no_record_failures: bool = False,
    serve: bool = False,
) -> Debug | None:
    """Returns the validated options of `submit --debug`; None without it. Raises InvalidArgument.

    `record_failures` is on with `post_mortem`. With `serve`, processes do not wait by default: Serve treats
    a waiting replica as failed.
    """
    options = {
        "--post-mortem": post_mortem,
        "--attach-timeout": attach_timeout is not None,
        "--pip-debugpy": pip_debugpy,
        "--record-failures": record_failures,
        "--no-record-failures": no_record_failures,
    }
    alone = next((option for option, is_given in options.items() if is_given), None)
    if not debug and alone:
        raise InvalidArgument(f"{alone} goes with --debug", hint=f"add --debug, or leave out {alone}")
    if not debug:
        return None
    if record_failures and no_record_failures:
        raise InvalidArgument(
            "--record-failures and --no-record-failures exclude each other", hint="leave out one of them"
        )
    records = record_failures or (post_mortem and not no_record_failures)
    chosen = Debug(post_mortem=post_mortem, pip_debugpy=pip_debugpy, record_failures=records)
    if attach_timeout is None:
        return replace(chosen, attach_timeout=0.0) if serve else chosen
    hint = f"choose seconds, from 0 (don't wait) to {DAY:g}"
    patience = seconds("--attach-timeout", attach_timeout, most=DAY, hint=hint)
    return replace(chosen, attach_timeout=patience)
