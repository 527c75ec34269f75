"""Removes objects of ours from Kubernetes, and nobody else's."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from bootstrap.errors import RaysideError
from bootstrap.kube.api import Kube, made_here
from bootstrap.step import Report
from bootstrap.steps.kuberay import require_gone


def is_overdue(document: Mapping[str, Any]) -> bool:
    """Returns whether an object that is being removed should have gone by now."""
    until = document["metadata"].get("deletionTimestamp")
    # It is UTC, as in 2026-01-31T23:59:59Z, and so has the order of its text.
    return bool(until) and str(until) < datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def removed(kube: Kube, path: str, what: str, report: Report) -> str | None:
    """Removes the object, if it is ours; returns what is left, where the API can't be asked."""
    try:
        document = kube.get(path)
        if document is None or not made_here(document):
            return None
        report(f"removing {what}")
        # A pod that is asked to end takes all its time, and nothing is left to save. One whose time is over
        # has a node that does not answer, and goes only so.
        kube.delete(path, gracePeriodSeconds="0" if is_overdue(document) else "1")
        require_gone(lambda: [*filter(None, [kube.get(path)])], what)
    except RaysideError as error:
        return f"{what} could not be removed from {kube.namespace}: {error.message}"
    return None
