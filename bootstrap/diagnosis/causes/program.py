"""Explains failures of the user's program: what it needs, what it asked for, what it raised."""

from __future__ import annotations

import re

from bootstrap.diagnosis import runtime_env
from bootstrap.diagnosis.causes.cause import POST_MORTEM, Cause
from bootstrap.diagnosis.failure import Failure


def runtime_env_failed(failure: Failure) -> Cause | None:
    if failure.name != "RuntimeEnvSetupError":
        return None
    return Cause(
        "runtime-env-failed",
        f"the runtime_env of {failure.subject} could not be made",
        *runtime_env.explained(failure.text),
    )


def module_not_found(failure: Failure) -> Cause | None:
    if failure.name not in ("ModuleNotFoundError", "ImportError"):
        return None
    match = re.search(r"No module named '([\w.]+)'", failure.message)
    module = match[1] if match else ""
    package, _, within = module.partition(".")
    # Python names what is missing: of a package that is there, the module within it.
    hint = (
        f"{package} is there, without {within}: look whether its version, or what was sent of it, has that"
        if within
        else f"a package of yours: ./invokew submit --py-modules path/to/{module}; from PyPI: name it in the "
        "runtime_env (--runtime-env)"
        if module
        else "look whether the module, and the one that it imports from, are of the versions that you expect"
    )
    return Cause(
        "module-not-found", f"{failure.subject} can't import {module or 'a name'}", failure.message, hint
    )


def get_timed_out(failure: Failure) -> Cause | None:
    if failure.name != "GetTimeoutError":
        return None
    waited = f"; unfinished were then: {', '.join(failure.unfinished[:5])}" if failure.unfinished else ""
    return Cause(
        "get-timed-out",
        f"{failure.subject} waited in ray.get for longer than its timeout",
        f"some object was not ready{waited}",
        "./invokew diagnose, while it waits, says on what; or give ray.get a longer timeout",
    )


def pending_calls_exceeded(failure: Failure) -> Cause | None:
    if failure.name != "PendingCallsLimitExceeded":
        return None
    return Cause(
        "pending-calls-exceeded",
        f"{failure.subject} called an actor more often than it may have calls waiting",
        failure.message.partition(" This limit")[0],
        "wait for results (ray.wait) before calling again, or raise max_pending_calls",
    )


def cancelled(failure: Failure) -> Cause | None:
    if failure.name != "TaskCancelledError":
        return None
    task = "a task" if failure.subject == "the driver" else failure.subject
    hint = "look for ray.cancel in the program, and don't ask for the result of what it cancelled"
    return Cause("task-cancelled", f"{task} was cancelled", "somebody called ray.cancel on it", hint)


def unschedulable(failure: Failure) -> Cause | None:
    if failure.name not in (
        *("TaskUnschedulableError", "ActorUnschedulableError"),
        *("TaskPlacementGroupRemoved", "ActorPlacementGroupRemoved"),
    ):
        return None
    return Cause(
        "task-unschedulable",
        f"{failure.subject} can run nowhere",
        failure.message.partition("\n")[0],
        "take back its scheduling strategy, or its placement group's removal",
    )


def raised(failure: Failure) -> Cause:
    words = failure.message or "it has no words of its own"
    if failure.subject == "the driver":
        return Cause("driver-raised", f"the driver raised {failure.name}", words, POST_MORTEM)
    if failure.attempts > 1:
        each = " each time that it was tried" if failure.alike else ""
        what = f"{failure.subject} raised {failure.name}{each}"
        before = "" if failure.alike else ", before in other ways"
        why = f"{words}; it was tried {failure.attempts} times{before}, and has no retries left"
        return Cause("task-retries-used-up", what, why, POST_MORTEM)
    return Cause("task-raised", f"{failure.subject} raised {failure.name}", words, POST_MORTEM)
