"""Plays a RayJob, and a Kubernetes API whose answers are scripted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bootstrap.kube.api import Kube
from rayside.errors import RaysideError

JOB = "/apis/ray.io/v1/namespaces/default/rayjobs/mine"
NAMESPACE = "/api/v1/namespaces/default"
ACTIVE: dict[str, Any] = {"status": {"phase": "Active"}}


def rayjob(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": "mine", "uid": "u-mine"},
        "spec": {
            "submissionMode": "InteractiveMode",
            "clusterSelector": {"ray.io/cluster": "rayside"},
            **spec,
        },
    }


@dataclass(frozen=True)
class Scripted(Kube):
    """Answers by `METHOD path`, with `?selector` where there is one; anything else fails.

    A list is the items of a list, and what was deleted is no more there.
    """

    script: dict[str, Any] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)

    def _call(
        self, method: str, path: str, query: Mapping[str, str], body: Mapping[str, Any] | None = None
    ) -> dict[str, Any] | None:
        if method == "DELETE":
            self.deleted.append(path)
            self.script[path] = None
            return None
        key = path + "".join(f"?{value}" for value in query.values())
        answer = self.script[key]
        if isinstance(answer, RaysideError):
            raise answer
        return {"items": answer} if isinstance(answer, list) else answer


def scripted(script: dict[str, Any]) -> Scripted:
    return Scripted(Path("/k/config"), "kind-rayside", script={NAMESPACE: ACTIVE, **script})


def existing_rayjob(submission_id: str = "m-1", **status: str) -> dict[str, Any]:
    """Returns the RayJob as kubectl-ray made it."""
    return {**rayjob(jobId=submission_id), "status": status}
