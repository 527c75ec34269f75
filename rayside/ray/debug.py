"""Additions to a job's runtime_env that make its processes open a debugger port: `submit --debug`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import rayside
from rayside import versions
from rayside.errors import InvalidArgument
from rayside.options import seconds
from rayside.ray.time_limits import DAY, RAISED
from rayside.worker.debug_config import VARIABLE, Config, with_package

_OVERRIDE = "RAY_OVERRIDE_JOB_RUNTIME_ENV"
_PACKAGE = Path(rayside.__file__).parent
# The debugger is both: without bytecode it works, and breakpoints cost more (ADR 35).
REQUIREMENTS = f"debugpy=={versions.DEBUGPY}", f"bytecode=={versions.BYTECODE}"


@dataclass(frozen=True)
class Debug:
    """Options of a job whose processes open a debugger port; see docs/hook.md.

    `attach_timeout`: seconds to wait for a debugger; 0 doesn't wait. `pip_debugpy`: whether the job's
    environment has to install debugpy. `packages`: local folders of debugpy's packages, to send with the
    job to workers that may lack them; empty if the workers have them.
    """

    attach_timeout: float = 60.0
    post_mortem: bool = False
    pip_debugpy: bool = False
    packages: tuple[str, ...] = ()

    def added_to(self, runtime_env: dict[str, Any], *, driver: bool) -> dict[str, Any]:
        """Returns the runtime_env with the package and its variables; the user's own fields are kept.

        With `driver`, Ray calls `on_init` of worker/driver.py in the driver, which sends a setup hook to the
        workers. Otherwise the workers import `setup` of worker/ray_process.py themselves.
        """
        env_vars = dict(runtime_env.get("env_vars") or {})
        setup_hook = runtime_env.get("worker_process_setup_hook")
        changed = dict(runtime_env)
        if self.pip_debugpy:
            for requirement in REQUIREMENTS:
                changed = with_package(changed, requirement)
        changed["py_modules"] = [*(runtime_env.get("py_modules") or []), *self._carried, str(_PACKAGE)]
        config = Config(attach_timeout=self.attach_timeout)
        hook_vars = {"RAY_DEBUG_POST_MORTEM": "1"} if self.post_mortem else {}
        if not driver:
            changed["worker_process_setup_hook"] = "rayside.worker.ray_process.setup"
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
    debug: bool, *, post_mortem: bool, attach_timeout: float | str | None, pip_debugpy: bool
) -> Debug | None:
    """Returns what `submit --debug`, and the options that go with it, ask for. Raises InvalidArgument."""
    options = {
        "--post-mortem": post_mortem,
        "--attach-timeout": attach_timeout is not None,
        "--pip-debugpy": pip_debugpy,
    }
    alone = next((option for option, is_given in options.items() if is_given), None)
    if not debug and alone:
        raise InvalidArgument(f"{alone} goes with --debug", hint=f"add --debug, or leave out {alone}")
    if not debug:
        return None
    chosen = Debug(post_mortem=post_mortem, pip_debugpy=pip_debugpy)
    if attach_timeout is None:
        return chosen
    hint = f"choose seconds, from 0 (don't wait) to {DAY:g}"
    patience = seconds("--attach-timeout", attach_timeout, most=DAY, hint=hint)
    return replace(chosen, attach_timeout=patience)
