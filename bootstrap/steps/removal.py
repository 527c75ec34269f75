"""Removes objects of ours from Kubernetes, and nobody else's."""

from __future__ import annotations

from bootstrap.errors import RaysideError
from bootstrap.kube.api import Kube, made_here
from bootstrap.step import Report
from bootstrap.steps.kuberay import require_gone


def removed(kube: Kube, path: str, what: str, report: Report) -> str | None:
    """Removes the object, if it is ours; returns what is left, where the API can't be asked."""
    try:
        document = kube.get(path)
        if document is None or not made_here(document):
            return None
        report(f"removing {what}")
        # A pod that is asked to end takes all its time, and nothing is left to save.
        kube.delete(path, gracePeriodSeconds="1")
        require_gone(lambda: [*filter(None, [kube.get(path)])], what)
    except RaysideError as error:
        return f"{what} could not be removed from {kube.namespace}: {error.message}"
    return None
