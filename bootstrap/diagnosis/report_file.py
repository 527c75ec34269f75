"""Archive for a bug report: what a diagnosis gathered, without secrets."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import tarfile
import time
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from bootstrap.diagnosis.evidence import Finding
from bootstrap.diagnosis.gather import Gathered
from rayside.errors import InvalidArgument
from rayside.plain import line
from rayside.worker.redaction import Redactor
from rayside.worker.secret_names import may_be_secret_name

MANIFEST = "MANIFEST.txt"
_KINDS = (".tar.gz", ".tgz", ".zip")
# What each document is, for the manifest; logs are files of their own.
_DOCUMENTS = {
    "ray": ("ray/version.json", "Ray's version and session"),
    "jobs": ("ray/jobs.json", "the submitted jobs, as Ray's Jobs API has them"),
    "tasks": ("ray/tasks.json", "the tasks that failed or have not finished, as Ray's State API has them"),
    "tasks tried again": ("ray/tasks-tried-again.json", "the tasks that finished when they were tried again"),
    "actors": ("ray/actors.json", "the actors, with why they died"),
    "nodes": ("ray/nodes.json", "Ray's nodes"),
    "placement groups": ("ray/placement-groups.json", "the placement groups"),
    "resources in use": (
        "ray/cluster-status.json",
        "resources in use and asked for, as the autoscaler has them",
    ),
    "paused tasks": ("ray/paused-tasks.json", "the tasks that stand still for a debugger"),
    "pods": ("kubernetes/pods.json", "Ray's pods"),
    "events": ("kubernetes/events.json", "what happened in the namespace"),
    "RayJobs": ("kubernetes/rayjobs.json", "the RayJobs of the namespace"),
    "RayClusters": ("kubernetes/rayclusters.json", "the RayClusters of the namespace"),
}


@dataclass(frozen=True)
class _File:
    name: str
    holds: str
    text: str


def require_new(file: Path) -> None:
    """Checks, before anything is gathered, that `file` can be written. Raises InvalidArgument."""
    if not file.name.endswith(_KINDS):
        raise InvalidArgument(
            f"--archive {file} has no ending that says what it is",
            hint="name it diagnosis.tar.gz or diagnosis.zip",
        )
    if os.path.lexists(file):
        raise InvalidArgument(
            f"--archive: {file} is there already, and is not overwritten",
            hint="choose another name, or remove it",
        )
    if not file.parent.is_dir():
        raise InvalidArgument(
            f"--archive: there is no folder {file.parent}", hint="make it, or choose another"
        )


def write(
    file: Path,
    gathered: Gathered,
    findings: Sequence[Finding],
    versions: Mapping[str, Any],
    settings: Mapping[str, Any],
    secrets: Sequence[str],
) -> int:
    """Writes the archive, readable by this user alone, and returns how many secrets were taken out.

    `secrets` are values that may stand nowhere in it. Raises InvalidArgument where `file` can't be made.
    """
    redactor = Redactor(secrets, is_secret=may_be_secret_name)
    files = _files(gathered, findings, versions, settings, redactor)
    files.insert(0, _File(MANIFEST, "this list", _manifest(files, redactor)))
    content = _zip(files) if file.name.endswith(".zip") else _tar(files)
    try:
        # It is 0600 from its first moment, and never another's file, whatever has come there meanwhile.
        descriptor = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except OSError as error:
        raise InvalidArgument(
            f"--archive: {file} can't be written: {error.strerror}", hint="choose another place for it"
        ) from None
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
    except OSError as error:
        with contextlib.suppress(OSError):
            file.unlink()
        raise InvalidArgument(
            f"--archive: {file} can't be written: {error.strerror}", hint="free some disk space"
        ) from None
    return redactor.counts.total()


def _files(
    gathered: Gathered,
    findings: Sequence[Finding],
    versions: Mapping[str, Any],
    settings: Mapping[str, Any],
    redactor: Redactor,
) -> list[_File]:
    def document(name: str, holds: str, value: Any) -> _File:
        return _File(name, holds, json.dumps(redactor.document(value), indent=2, ensure_ascii=False) + "\n")

    def log(name: str, holds: str, text: str) -> _File:
        return _File(f"logs/{_safe(name)}.log", holds, redactor.text(text))

    explained = {
        "findings": [finding.document() for finding in findings],
        "unread": list(gathered.evidence.unread),
    }
    files = [
        document("findings.json", "what was found, and what could not be read", explained),
        document("versions.json", "versions of Rayside, Python and this system", versions),
        document("settings.json", "Rayside's settings", settings),
    ]
    documents = gathered.documents
    files += [document(*_DOCUMENTS[name], documents[name]) for name in _DOCUMENTS if name in documents]
    for job, text in (documents.get("output of jobs") or {}).items():
        files.append(log(f"job-{job}", f"the end of what job {job} printed", text))
    if text := documents.get("head's log"):
        files.append(log("head", "the end of the log of Ray's head", text))
    if text := documents.get("raylets' errors"):
        files.append(log("raylets", "the ends of what the nodes' raylets printed as errors", text))
    for container, text in (documents.get("logs of pods") or {}).items():
        files.append(log(f"pod-{container}", f"the end of the log of {container}", text))
    return _told_apart(files)


def _told_apart(files: Sequence[_File]) -> list[_File]:
    """Returns the files with a number in those names that others have already."""
    apart: dict[str, _File] = {}
    for file in files:
        path = Path(file.name)
        numbered = (f"{path.parent}/{path.stem}-{number}{path.suffix}" for number in count(2))
        name = file.name if file.name not in apart else next(name for name in numbered if name not in apart)
        apart[name] = replace(file, name=name)
    return list(apart.values())


def _manifest(files: Sequence[_File], redactor: Redactor) -> str:
    counts = ", ".join(f"{count} x {kind}" for kind, count in sorted(redactor.counts.items()))
    lines = [
        "A diagnosis by Rayside, for a bug report.",
        "",
        f"Taken out as secrets: {redactor.counts.total()}{f': {counts}' if counts else ''}. "
        "<redacted> stands where they were. Names of files, hosts and jobs are left in.",
        "",
        *(f"{file.name}: {line(redactor.text(file.holds))}" for file in files),
    ]
    return "\n".join(lines) + "\n"


def _safe(name: str) -> str:
    """Returns a stranger's name as that of a file below the archive's folder."""
    return re.sub(r"[^A-Za-z0-9_-]", "-", name)[:120]


def _tar(files: Sequence[_File]) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as archive:
        for file in files:
            entry = tarfile.TarInfo(file.name)
            content = file.text.encode(errors="replace")
            entry.size, entry.mode, entry.mtime = len(content), 0o600, int(time.time())
            archive.addfile(entry, io.BytesIO(content))
    return target.getvalue()


def _zip(files: Sequence[_File]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            archive.writestr(file.name, file.text.encode(errors="replace"))
    return target.getvalue()
