"""Errors for users: what happened, the one thing to do about it, and an exit code.

Exit codes, by what has to change before the same command can work:

====  =======================================================================
code  meaning
====  =======================================================================
0     done
1     a defect in Rayside (a traceback is shown), or a check failed, or a test also at its second look
2     the command or a setting is wrong: change what was typed
3     this machine lacks something: a port, memory, disk, network, a program
4     the target is not in the state the command needs
5     the job could not be submitted, or failed
6     the debugger could not do what was asked
130   interrupted (Ctrl-C)
====  =======================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

CHECK, USAGE, MACHINE, TARGET, JOB, DEBUGGER, INTERRUPTED = 1, 2, 3, 4, 5, 6, 130


class RaysideError(Exception):
    """Base class of all expected errors; `message` says what happened, `hint` the one thing to do.

    `fields` are added to the error's document, as an interrupted job's `submission_id`.
    """

    id: ClassVar[str]
    exit_code: ClassVar[int]

    def __init__(self, message: str, *, hint: str, **fields: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.fields = fields

    def __reduce__(self) -> tuple[Any, ...]:
        """Supports pickling, as for an error that an actor raises to its caller."""
        return partial(type(self), hint=self.hint, **self.fields), (self.message,)

    def document(self) -> dict[str, Any]:
        """Returns the JSON form: `{"error": {"id", "message", "hint"}}`, and the fields next to `error`."""
        return {"error": {"id": self.id, "message": self.message, "hint": self.hint}, **self.fields}


# --- the command or a setting is wrong ---------------------------------------------------


class InvalidSetting(RaysideError):
    id, exit_code = "invalid-setting", USAGE


class MissingWorkingDir(RaysideError):
    id, exit_code = "missing-working-dir", USAGE


class MissingEntrypoint(RaysideError):
    id, exit_code = "missing-entrypoint", USAGE


class NotAPackage(RaysideError):
    id, exit_code = "not-a-package", USAGE


class InvalidYaml(RaysideError):
    id, exit_code = "invalid-yaml", USAGE


class InvalidArgument(RaysideError):
    id, exit_code = "invalid-argument", USAGE


class CapsuleUnreadable(RaysideError):
    id, exit_code = "capsule-unreadable", USAGE


class UnknownSetting(RaysideError):
    id, exit_code = "unknown-setting", USAGE


class PortTaken(RaysideError):
    id, exit_code = "port-taken", MACHINE


class UnsafeFolder(RaysideError):
    id, exit_code = "unsafe-folder", MACHINE


class MissingProgram(RaysideError):
    id, exit_code = "missing-program", MACHINE


class UnsupportedPython(RaysideError):
    id, exit_code = "unsupported-python", MACHINE


class NotRunning(RaysideError):
    id, exit_code = "not-running", TARGET


class ConnectionLost(RaysideError):
    id, exit_code = "connection-lost", TARGET


class NotRay(RaysideError):
    id, exit_code = "not-ray", TARGET


class KubernetesTokens(RaysideError):
    id, exit_code = "kubernetes-tokens", TARGET


class SshFailed(RaysideError):
    id, exit_code = "ssh-failed", TARGET


class StrangerListens(NotRunning):
    id = "stranger-listens"


class CommandFailed(RaysideError):
    id, exit_code = "command-failed", TARGET


class ClusterUnreachable(RaysideError):
    id, exit_code = "cluster-unreachable", TARGET


class CredentialsRefused(RaysideError):
    id, exit_code = "credentials-refused", TARGET


class UnsupportedRay(RaysideError):
    id, exit_code = "unsupported-ray", TARGET


class NodesUnreachable(RaysideError):
    id, exit_code = "nodes-unreachable", TARGET


class RelayNotStarted(RaysideError):
    id, exit_code = "relay-not-started", TARGET


class Drifted(RaysideError):
    id, exit_code = "drifted", TARGET


class NotReady(RaysideError):
    id, exit_code = "not-ready", TARGET


class Forbidden(RaysideError):
    id, exit_code = "forbidden", TARGET


class SubmissionFailed(RaysideError):
    id, exit_code = "submission-failed", JOB


class JobFailed(RaysideError):
    id, exit_code = "job-failed", JOB


class JobNotFound(RaysideError):
    id, exit_code = "job-not-found", JOB


class NotAttachable(RaysideError):
    """None of the named processes can be debugged; `fields` contain each process's answer."""

    id, exit_code = "not-attachable", JOB


class DebuggerGone(RaysideError):
    id, exit_code = "debugger-gone", DEBUGGER


class AttachFailed(RaysideError):
    id, exit_code = "attach-failed", DEBUGGER


class DebuggerBusy(RaysideError):
    id, exit_code = "debugger-busy", DEBUGGER


class NothingPaused(RaysideError):
    id, exit_code = "nothing-paused", DEBUGGER


class RequestFailed(RaysideError):
    """A request to the relay failed; `ray` is the relay's data about the error for programs."""

    id, exit_code = "request-failed", DEBUGGER

    def __init__(self, message: str, *, hint: str, ray: Mapping[str, Any] | None = None) -> None:
        super().__init__(message, hint=hint)
        self.ray = ray or {}


# --- interrupted -------------------------------------------------------------------------


class Interrupted(RaysideError):
    id, exit_code = "interrupted", INTERRUPTED
