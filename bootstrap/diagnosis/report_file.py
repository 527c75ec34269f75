"""Archive for a bug report: the evidence of a diagnosis, without secrets."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
import time
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bootstrap.diagnosis.evidence import Finding
from bootstrap.diagnosis.gather import Gathered
from rayside.errors import InvalidArgument
from rayside.plain import line
from rayside.worker.redaction import Redactor
from rayside.worker.secret_names import may_be_secret_name

MANIFEST = "MANIFEST.txt"
_KINDS = (".tar.gz", ".tgz", ".zip")
# Limit: characters of a log's name in its file name.
_LONGEST_NAME = 180
# File name and description of each document, for the manifest; logs are separate files.
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
    "recorded failures": ("ray/failures.json", "what tasks left that failed with no debugger there"),
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
    """Writes the archive, readable by this user alone, and returns the number of redacted secrets.

    `secrets` are values that must not be in it. Raises InvalidArgument if `file` can't be created.
    """
    redactor = Redactor(secrets, is_secret=may_be_secret_name)
    files = _files(gathered, findings, versions, settings, redactor)
    files.insert(0, _File(MANIFEST, "this list", _manifest(files, redactor)))
    try:
        content = _packed(files, is_zip=file.name.endswith(".zip"))
        # Created with the mode 0600, and never over an existing file, whatever was made there meanwhile.
        descriptor = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(content)
        except OSError:
            file.unlink()
            raise
    except OSError as error:
        raise InvalidArgument(
            f"--archive: {file} can't be written: {error.strerror}", hint="choose another place for it"
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
        # Names of jobs are untrusted: none can lead out of the archive's folder, and each stays unique.
        quoted = quote(name, safe="")
        if len(quoted) > _LONGEST_NAME:
            quoted = f"{quoted[:_LONGEST_NAME]}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"
        return _File(f"logs/{quoted}.log", holds, redactor.text(text))

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
    return files


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


def _packed(files: Sequence[_File], *, is_zip: bool) -> bytes:
    target = io.BytesIO()
    contents = {file.name: file.text.encode(errors="replace") for file in files}
    if is_zip:
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in contents.items():
                archive.writestr(name, content)
        return target.getvalue()
    with tarfile.open(fileobj=target, mode="w:gz") as tar:
        for name, content in contents.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(content), 0o600, int(time.time())
            tar.addfile(entry, io.BytesIO(content))
    return target.getvalue()
