"""Defines every error a user can meet: what happened, the one thing to do about it, and an exit code.

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
    """Base of all expected errors; `message` says what happened, `hint` the one thing to do.

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
        """Lets it pass between processes, as from an actor to its caller."""
        return partial(type(self), hint=self.hint, **self.fields), (self.message,)

    def document(self) -> dict[str, Any]:
        """Returns the JSON form: `{"error": {"id", "message", "hint"}}`, and beside it the fields."""
        return {"error": {"id": self.id, "message": self.message, "hint": self.hint}, **self.fields}


# --- the command or a setting is wrong ---------------------------------------------------


class UnknownSetting(RaysideError):
    id, exit_code = "unknown-setting", USAGE


class InvalidSetting(RaysideError):
    id, exit_code = "invalid-setting", USAGE


class UnknownTarget(RaysideError):
    id, exit_code = "unknown-target", USAGE


class UnknownSource(RaysideError):
    id, exit_code = "unknown-source", USAGE


class MissingWorkingDir(RaysideError):
    id, exit_code = "missing-working-dir", USAGE


class MissingEntrypoint(RaysideError):
    id, exit_code = "missing-entrypoint", USAGE


class NotAPackage(RaysideError):
    id, exit_code = "not-a-package", USAGE


class OtherTarget(RaysideError):
    id, exit_code = "other-target", USAGE


class InvalidYaml(RaysideError):
    id, exit_code = "invalid-yaml", USAGE


class InvalidArgument(RaysideError):
    id, exit_code = "invalid-argument", USAGE


class NotARayJob(RaysideError):
    id, exit_code = "not-a-rayjob", USAGE


class NotInteractive(RaysideError):
    id, exit_code = "not-interactive", USAGE


class ImagesOutOfReach(RaysideError):
    id, exit_code = "images-out-of-reach", USAGE


class NoRoom(RaysideError):
    id, exit_code = "no-room", TARGET


class NoIngressClass(RaysideError):
    id, exit_code = "no-ingress-class", TARGET


class HasPlaces(RaysideError):
    id, exit_code = "has-places", TARGET


# --- a check failed -----------------------------------------------------------------------


class NotSolved(RaysideError):
    id, exit_code = "not-solved", CHECK


# --- this machine lacks something --------------------------------------------------------


class PortTaken(RaysideError):
    id, exit_code = "port-taken", MACHINE


class PortPublic(RaysideError):
    id, exit_code = "port-public", MACHINE


class NoNetwork(RaysideError):
    id, exit_code = "no-network", MACHINE


class LowMemory(RaysideError):
    id, exit_code = "low-memory", MACHINE


class LowDisk(RaysideError):
    id, exit_code = "low-disk", MACHINE


class UnsupportedPython(RaysideError):
    id, exit_code = "unsupported-python", MACHINE


class UnsupportedSystem(RaysideError):
    id, exit_code = "unsupported-system", MACHINE


class MissingProgram(RaysideError):
    id, exit_code = "missing-program", MACHINE


class AptBusy(RaysideError):
    id, exit_code = "apt-busy", MACHINE


class EngineNotRunning(RaysideError):
    id, exit_code = "engine-not-running", MACHINE


class EngineNotSupported(EngineNotRunning):
    id = "engine-not-supported"


class EngineNotPermitted(RaysideError):
    id, exit_code = "engine-not-permitted", MACHINE


class LowInotify(RaysideError):
    id, exit_code = "low-inotify", MACHINE


class UnsafeFolder(RaysideError):
    id, exit_code = "unsafe-folder", MACHINE


class DownloadFailed(RaysideError):
    id, exit_code = "download-failed", MACHINE


class BadChecksum(RaysideError):
    id, exit_code = "bad-checksum", MACHINE


class BadBundle(RaysideError):
    id, exit_code = "bad-bundle", MACHINE


class RegistryUnreachable(RaysideError):
    id, exit_code = "registry-unreachable", MACHINE


class RegistryRefused(RaysideError):
    id, exit_code = "registry-refused", MACHINE


class NotMirrored(RaysideError):
    id, exit_code = "not-mirrored", MACHINE


class BuildFailed(RaysideError):
    id, exit_code = "build-failed", MACHINE


class WrongArchitecture(RaysideError):
    id, exit_code = "wrong-architecture", MACHINE


class ImageMissing(RaysideError):
    id, exit_code = "image-missing", MACHINE


# --- the target is not in the state the command needs ------------------------------------


class NotRunning(RaysideError):
    id, exit_code = "not-running", TARGET


class ConnectionLost(RaysideError):
    id, exit_code = "connection-lost", TARGET


class NotRay(RaysideError):
    id, exit_code = "not-ray", TARGET


class UnsupportedRay(RaysideError):
    id, exit_code = "unsupported-ray", TARGET


class KubernetesTokens(RaysideError):
    id, exit_code = "kubernetes-tokens", TARGET


class NodesUnreachable(RaysideError):
    id, exit_code = "nodes-unreachable", TARGET


class SshFailed(RaysideError):
    id, exit_code = "ssh-failed", TARGET


class RelayNotStarted(RaysideError):
    id, exit_code = "relay-not-started", TARGET


class StrangerListens(NotRunning):
    id = "stranger-listens"


class Drifted(RaysideError):
    id, exit_code = "drifted", TARGET


class RayDied(RaysideError):
    id, exit_code = "ray-died", TARGET


class NotReady(RaysideError):
    id, exit_code = "not-ready", TARGET


class CommandFailed(RaysideError):
    id, exit_code = "command-failed", TARGET


class NotOurs(RaysideError):
    id, exit_code = "not-ours", TARGET


class ClusterUnreachable(RaysideError):
    id, exit_code = "cluster-unreachable", TARGET


class Forbidden(RaysideError):
    id, exit_code = "forbidden", TARGET


class CredentialsRefused(RaysideError):
    id, exit_code = "credentials-refused", TARGET


class FieldConflict(RaysideError):
    id, exit_code = "field-conflict", TARGET
    # Who has set the fields, by the names that Kubernetes has for them.
    managers: frozenset[str] = frozenset()


class NamespaceTerminating(RaysideError):
    id, exit_code = "namespace-terminating", TARGET


class OperatorNotRunning(RaysideError):
    id, exit_code = "operator-not-running", TARGET


class PodFailed(RaysideError):
    id, exit_code = "pod-failed", TARGET


class PodNotFound(RaysideError):
    id, exit_code = "pod-not-found", TARGET


# --- the job -----------------------------------------------------------------------------


class SubmissionFailed(RaysideError):
    id, exit_code = "submission-failed", JOB


class JobFailed(RaysideError):
    id, exit_code = "job-failed", JOB


class JobNotFound(RaysideError):
    id, exit_code = "job-not-found", JOB


class NotAttachable(RaysideError):
    """Nothing of what was named can be debugged; `fields` say what each process answered."""

    id, exit_code = "not-attachable", JOB


# --- the debugger ------------------------------------------------------------------------


class DebuggerGone(RaysideError):
    id, exit_code = "debugger-gone", DEBUGGER


class AttachFailed(RaysideError):
    id, exit_code = "attach-failed", DEBUGGER


class DebuggerBusy(RaysideError):
    id, exit_code = "debugger-busy", DEBUGGER


class NothingPaused(RaysideError):
    id, exit_code = "nothing-paused", DEBUGGER


class RequestFailed(RaysideError):
    """A request to the relay failed; `ray` is what the relay says of it to programs."""

    id, exit_code = "request-failed", DEBUGGER

    def __init__(self, message: str, *, hint: str, ray: Mapping[str, Any] | None = None) -> None:
        super().__init__(message, hint=hint)
        self.ray = ray or {}


# --- interrupted -------------------------------------------------------------------------


class Interrupted(RaysideError):
    id, exit_code = "interrupted", INTERRUPTED
