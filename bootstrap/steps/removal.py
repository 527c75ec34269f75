"""Removal of our objects from Kubernetes; foreign ones are left alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bootstrap.kube.api import Kube, made_here, path_of
from bootstrap.kube.trouble import is_overdue
from bootstrap.steps.kuberay import require_gone
from rayside.errors import RaysideError
from rayside.steps.step import Report


def removed(kube: Kube, path: str, what: str, report: Report) -> str | None:
    """Removes the object, if it is ours; returns an error text if it could not be removed."""
    try:
        document = kube.get(path)
        if document is None or not made_here(document):
            return None
        report(f"removing {what}")
        # A pod uses its whole grace period, and nothing is left to save. An overdue pod has a node that does
        # not respond, and needs 0.
        kube.delete(path, gracePeriodSeconds="0" if is_overdue(document) else "1")
        require_gone(lambda: [*filter(None, [kube.get(path)])], what)
    except RaysideError as error:
        return f"{what} could not be removed from {kube.namespace}: {error.message}"
    return None


def remove_ours(kube: Kube, documents: Iterable[Mapping[str, Any]], report: Report) -> None:
    """Requests the removal of the existing objects among these that we made."""
    for document in documents:
        there = kube.get(path_of(document))
        if there and made_here(there):
            report(f"removing {document['metadata']['name']}")
            kube.delete(path_of(document))
