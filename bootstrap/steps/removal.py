"""Removes objects of ours from Kubernetes, and nobody else's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bootstrap.kube.api import Kube, made_here, path_of
from bootstrap.kube.trouble import is_overdue
from bootstrap.steps.kuberay import require_gone
from rayside.errors import RaysideError
from rayside.steps.step import Report


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


def remove_ours(kube: Kube, documents: Iterable[Mapping[str, Any]], report: Report) -> None:
    """Asks for the removal of those of these objects that are there, and that we have made."""
    for document in documents:
        there = kube.get(path_of(document))
        if there and made_here(there):
            report(f"removing {document['metadata']['name']}")
            kube.delete(path_of(document))
