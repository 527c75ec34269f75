"""Pull Secret: the login to the mirror, for pods with images from there."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bootstrap.errors import RegistryRefused
from bootstrap.instance import Instance
from bootstrap.kube import operator
from bootstrap.kube.api import CORE, Kube, made_here
from bootstrap.registry.address import parse
from bootstrap.registry.login import Login, login_for
from bootstrap.steps.removal import removed
from rayside.errors import RaysideError
from rayside.steps.step import Report, Status, missing, ready


@dataclass(frozen=True)
class PullSecret:
    """The namespace has a Secret with the login to a registry, if one is needed; else none of ours.

    Attributes:
        registry: HOST/PATH; if empty, none is needed, and an earlier Secret of ours is removed.
        secret: the Secret's name in pods.
        cluster_goes: `down` removes Kubernetes itself.
        login: returns the login for a host; None if it needs none. Raises RegistryRefused if it can't be
            read.
    """

    instance: Instance
    kube: Kube
    registry: str
    secret: str
    cluster_goes: bool = False
    login: Callable[[str], Login | None] = login_for
    name: str = "pull-secret"
    needs: tuple[str, ...] = ("kubeconfig",)

    @property
    def title(self) -> str:
        return f"login of {self._host or 'a registry'} for pods"

    def check(self) -> Status:
        present = self.kube.get(self._path)
        if present and not made_here(present):
            return ready(f"the Secret {self.secret} is another's, and stays")
        if not self.registry:
            return missing("an earlier one is there") if present else ready("none is wanted")
        kept = _kept(present)
        if kept != self._contents(kept):
            return missing("it is an earlier login" if present else "not made yet")
        return ready(f"in the Secret {self.secret}")

    def apply(self, report: Report) -> None:
        if not self.registry:
            self.kube.delete(self._path)
            return
        metadata = {"name": self.secret, "namespace": self.kube.namespace, "labels": self.instance.labels}
        self.kube.apply(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": metadata,
                "type": "kubernetes.io/dockerconfigjson",
                "stringData": {".dockerconfigjson": self._contents(_kept(self.kube.get(self._path)))},
            }
        )

    def undo(self, report: Report) -> str | None:
        """Removes it, unless an operator of ours, which other clusters use, still pulls with it.

        Returns a description of what is left, also if the API can't be reached.
        """
        if self.cluster_goes:
            return None
        try:
            present = self.kube.get(self._path)
            if present and made_here(present) and self.secret in operator.logins_of_ours(self.kube):
                return f"the Secret {self.secret} stays: KubeRay's operator pulls by it, and others use that"
        except RaysideError:
            pass  # `removed` gets the same error, and returns it.
        return removed(self.kube, self._path, f"the Secret {self.secret}", report)

    def _contents(self, kept: str) -> str:
        """Returns the Secret's content; an existing login is kept while this machine has none.

        Raises RegistryRefused if this machine's login can't be read, and the Secret has none.
        """
        try:
            login = self.login(self._host)
        except RegistryRefused:
            if not kept:
                raise
            return kept
        if login is None and kept:
            return kept
        # Pods name the Secret, whether or not the registry needs a login.
        auths = {self._host: {"auth": login.basic.partition(" ")[2]}} if login else {}
        return json.dumps({"auths": auths})

    @property
    def _host(self) -> str:
        return parse(self.registry).host if self.registry else ""

    @property
    def _path(self) -> str:
        return f"{CORE}/namespaces/{self.kube.namespace}/secrets/{self.secret}"


def _kept(secret: dict[str, Any] | None) -> str:
    """Returns the logins in a Secret; empty if there is none."""
    text = (secret or {}).get("data", {}).get(".dockerconfigjson", "")
    return base64.b64decode(text).decode(errors="replace")
