"""Verb `diagnose`: failed and stuck parts of a cluster, with causes, and the archive for a bug report."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from bootstrap.diagnosis import report_file
from bootstrap.diagnosis.evidence import Evidence, Finding
from bootstrap.diagnosis.explain import findings
from bootstrap.diagnosis.gather import Gathered, gather
from bootstrap.errors import PodNotFound
from bootstrap.settings import DEBUGPY_VERSION, RAY_VERSION, Settings
from bootstrap.targets import choice
from bootstrap.targets.target import Target
from rayside.console import Console
from rayside.errors import InvalidArgument, JobNotFound, RaysideError
from rayside.plain import line
from rayside.ray.metadata import DEBUG
from rayside.settings import WITH_LOGIN
from rayside.system.shell import Shell
from rayside.verbs.recorded_failures import documents
from rayside.verbs.relay_requests import paused
from rayside.worker.secret_names import may_be_secret_name

# Number of ids in the hint for an unknown job.
_NEWEST = 5
# A part of an index's URL of at least this length may be a token; `simple` and the like are shorter.
_LONG_PART = 12


def diagnose(
    settings: Settings, console: Console, *, job: str | None, pod: str | None, archive: str | None
) -> None:
    """Shows what failed or is stuck, the most important first, or of one job or pod."""
    # Unlike Path.expanduser, it leaves an unknown ~USER unchanged.
    file = Path(os.path.expanduser(archive)) if archive else None  # noqa: PTH111
    if file:
        report_file.require_new(file)
    if job and pod:
        raise InvalidArgument("--job and --pod are two questions", hint="ask one of them at a time")
    target = choice.existing(settings, Shell())
    if pod and target.kubernetes is None:
        hint = f"./invokew diagnose without --pod looks at the target {target.instance.target}"
        raise InvalidArgument("--pod needs a Kubernetes cluster", hint=hint)
    with console.progress(), console.work("gather", "looking at the cluster"):
        gathered = gather(
            target, lambda: paused(target.access, everyone=True).tasks, job=job or "", pod=pod or ""
        )
    if file:
        with console.progress(), console.work("failures", "reading recorded failures"):
            gathered = _with_failures(gathered, target)
    submission_id = _known_job(gathered.evidence, job) if job else ""
    results = findings(gathered.evidence, job=submission_id, pod=pod or "")
    if pod:
        _require_pod(gathered.evidence, pod, target)
    rows = [{**each.document(), "hint": console.for_cluster(each.hint)} for each in results]
    document: dict[str, Any] = {"findings": rows, "unread": list(gathered.evidence.unread)}
    if file:
        redacted = _archive(file, gathered, results, target, settings)
        document["archive"] = {"file": str(file.absolute()), "redacted": redacted}
    if console.as_json:
        console.document(document)
    _show(console, results, gathered.evidence.unread)
    if file:
        console.result(f"\n{file} holds what was read; {redacted} secrets were taken out (MANIFEST.txt)")
    console.result(f"\nNext: {results[0].hint}")


def _show(console: Console, results: Sequence[Finding], unread: Sequence[str]) -> None:
    for number, finding in enumerate(results):
        where = f" ({finding.where})" if finding.where else ""
        console.result(f"{finding.what[:1].upper()}{finding.what[1:]}{where}", style="header")
        if finding.why:
            console.result(f"  {finding.why}")
        if number:
            console.result(f"  hint: {finding.hint}")
        console.result(f"  [{finding.id}]")
    for reason in unread:
        console.result(f"Not read: {reason}")


def _known_job(evidence: Evidence, job: str) -> str:
    """Returns a job's submission id, given that or Ray's job id. Raises JobNotFound, RayDied, NotRunning."""
    for each in evidence.jobs:
        if job in (each.submission_id, each.job_id):
            return each.submission_id
    if any(task.job_id == job for task in evidence.tasks):
        return job  # Its driver was started by hand.
    if evidence.ray:
        raise evidence.ray
    newest = ", ".join(each.submission_id for each in reversed(evidence.jobs[-_NEWEST:]))
    raise JobNotFound(
        f"Ray has no job {line(job)!r}, or no longer",
        hint=f"the newest are {line(newest)}" if newest else "./invokew submit starts one",
    )


def _require_pod(evidence: Evidence, pod: str, target: Target) -> None:
    if any(each["metadata"]["name"] == pod for each in evidence.pods):
        return
    assert target.kubernetes is not None
    names = sorted(each["metadata"]["name"] for each in target.kubernetes.kube.pods(""))
    raise PodNotFound(
        f"there is no pod {line(pod)!r} in the namespace {target.instance.namespace}",
        hint=f"there are {line(', '.join(names))}" if names else "./invokew status says what is there",
    )


def _with_failures(gathered: Gathered, target: Target) -> Gathered:
    """Adds recorded failures of debugged jobs. Our own job has to read these, so only an archive has them."""
    if not any(DEBUG in job.metadata for job in gathered.evidence.jobs):
        return gathered
    try:
        found = documents(target.access)
    except RaysideError as error:
        gathered.evidence.unread.append(f"recorded failures: {line(error.message)}")
        return gathered
    return replace(gathered, documents={**gathered.documents, "recorded failures": found})


def _archive(
    file: Path, gathered: Gathered, results: Sequence[Finding], target: Target, settings: Settings
) -> int:
    ray = gathered.documents.get("ray") or {}
    versions = {
        "ray": ray.get("ray_version") or f"{RAY_VERSION} was pinned; Ray does not answer",
        "debugpy": DEBUGPY_VERSION,
        "python": platform.python_version(),
        "system": platform.platform(),
        "target": target.instance.target,
        "source": target.instance.source,
        "command": sys.argv[1:],
    }
    values = {name: str(value) for name, value in vars(settings).items()}
    return report_file.write(file, gathered, results, versions, values, _secrets(target, settings))


def _secrets(target: Target, settings: Settings) -> list[str]:
    """Returns the secrets that must not be in an archive: the cluster's, and this environment's."""
    known = [value for name, value in os.environ.items() if may_be_secret_name(name)]
    for key in WITH_LOGIN:
        address = urlsplit(getattr(settings, key))
        # A login may be a token alone.
        login = address.password or address.username or ""
        # So may be a part of its path.
        parts = [part for part in address.path.split("/") if len(part) >= _LONG_PART]
        known += [login, unquote(login), *parts]
    with contextlib.suppress(OSError):  # Without the file there is no token.
        known.append(target.instance.token_file.read_text().strip())
    # It may be in Kubernetes; if that does not respond, nothing was read from there.
    with contextlib.suppress(RaysideError):
        known.append(target.access.workspace_password() or "")
    return known
