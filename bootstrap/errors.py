"""Errors of the bootstrapper: id, message, hint, exit code (from rayside/errors.py)."""

from __future__ import annotations

from rayside.errors import CHECK, MACHINE, TARGET, USAGE, RaysideError


class UnknownTarget(RaysideError):
    id, exit_code = "unknown-target", USAGE


class UnknownSource(RaysideError):
    id, exit_code = "unknown-source", USAGE


class OtherTarget(RaysideError):
    id, exit_code = "other-target", USAGE


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


class PortPublic(RaysideError):
    id, exit_code = "port-public", MACHINE


class NoNetwork(RaysideError):
    id, exit_code = "no-network", MACHINE


class LowMemory(RaysideError):
    id, exit_code = "low-memory", MACHINE


class LowDisk(RaysideError):
    id, exit_code = "low-disk", MACHINE


class UnsupportedSystem(RaysideError):
    id, exit_code = "unsupported-system", MACHINE


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


class RayDied(RaysideError):
    id, exit_code = "ray-died", TARGET


class NotOurs(RaysideError):
    id, exit_code = "not-ours", TARGET


class FieldConflict(RaysideError):
    id, exit_code = "field-conflict", TARGET
    # Kubernetes' names of the field managers that own the fields.
    managers: frozenset[str] = frozenset()


class NamespaceTerminating(RaysideError):
    id, exit_code = "namespace-terminating", TARGET


class OperatorNotRunning(RaysideError):
    id, exit_code = "operator-not-running", TARGET


class PodFailed(RaysideError):
    id, exit_code = "pod-failed", TARGET


class PodNotFound(RaysideError):
    id, exit_code = "pod-not-found", TARGET
