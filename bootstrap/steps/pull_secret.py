"""Pull secret: the login to the mirror, for the pods whose images are there."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from bootstrap.errors import RegistryRefused
from bootstrap.instance import Instance
from bootstrap.kube import operator
from bootstrap.kube.api import CORE, Kube, made_here
from bootstrap.registry.address import Address, parse
from bootstrap.registry.login import Login, login_for
from bootstrap.settings import Settings
from bootstrap.step import Report, Status, missing, pending, ready
from rayside.errors import RaysideError


@dataclass(frozen=True)
class PullSecret:
    """The namespace has a Secret with the login of a registry, where one is wanted; else none of ours.

    Pods of ours name it. Those of others get it by the default ServiceAccount where `is_for_others`; one that
    has logins already stays as it is, for whoever named those can name this one, too.
    """

    instance: Instance
    kube: Kube
    # None where nothing is pulled by a login of this machine.
    address: Address | None
    # Returns None where the registry needs no login. Raises RegistryRefused where it can't be read.
    login: Callable[[], Login | None]
    secret: str
    # Else one that an earlier `up` made goes.
    is_wanted: bool = True
    is_for_others: bool = True
    # `down` removes Kubernetes itself.
    cluster_goes: bool = False
    name: str = "pull-secret"
    needs: tuple[str, ...] = ("kubeconfig",)
    patience: float = 60.0

    @property
    def title(self) -> str:
        return f"login of {self.address.host if self.address else 'a registry'} for pods"

    def check(self) -> Status:
        present = self.kube.get(self._path)
        if present and not made_here(present):
            return ready(f"the Secret {self.secret} is another's, and stays")
        if not self._is_wanted:
            return missing("an earlier one is there") if present else ready("none is wanted")
        named = self._named()
        if self._may_name and named is None:
            return pending("the namespace has no default ServiceAccount yet")
        kept = _kept(present)
        contents = self._contents(kept)
        if present is None:
            return missing("not made yet")
        if kept != contents:
            return missing("it is an earlier login")
        place = f"in the Secret {self.secret}"
        # Whoever needs no login is told of none.
        if not self.is_for_others or self._is_empty(contents) or self.secret in (named or []):
            return ready(place)
        if named is None:
            return ready(f"{place}; you may not name it in the default ServiceAccount")
        if named:
            return ready(f"{place}; the default ServiceAccount has {', '.join(named)}, and stays")
        return missing("the default ServiceAccount does not name it yet")

    def apply(self, report: Report) -> None:
        if not self._is_wanted:
            self._remove()
            return
        contents = self._contents(_kept(self.kube.get(self._path)))
        metadata: dict[str, Any] = {"namespace": self.kube.namespace, "labels": self.instance.labels}
        self.kube.apply(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {**metadata, "name": self.secret},
                "type": "kubernetes.io/dockerconfigjson",
                "stringData": {".dockerconfigjson": contents},
            }
        )
        if not self._is_empty(contents) and self._named() == []:
            self._name([self.secret])

    def undo(self, report: Report) -> str | None:
        """Removes it, unless an operator of ours, which other clusters use, still pulls by it.

        Returns what is left, where the API can't be asked.
        """
        try:
            return None if self.cluster_goes else self._undone(report)
        except RaysideError as error:
            return (
                f"the Secret {self.secret} could not be removed from {self.kube.namespace}: {error.message}"
            )

    def _undone(self, report: Report) -> str | None:
        present = self.kube.get(self._path)
        if present and not made_here(present):
            return None
        if present and self.secret in operator.logins_of_ours(self.kube):
            return f"the Secret {self.secret} stays: KubeRay's operator pulls by it, and others use that"
        if present or self.secret in (self._named() or []):
            report(f"removing the Secret {self.secret}")
            self._remove()
        return None

    def _remove(self) -> None:
        # Names that others have added stay, and ours with them: the list is one value.
        if self._named() == [self.secret]:
            self._name([])
        self.kube.delete(self._path)

    @property
    def _is_wanted(self) -> bool:
        return self.is_wanted and self.address is not None

    @cached_property
    def _may_name(self) -> bool:
        """Returns whether we may change the default ServiceAccount, and are to."""
        return self.is_for_others and all(
            self.kube.allowed(verb, "serviceaccounts") for verb in ("get", "patch")
        )

    def _named(self) -> list[str] | None:
        """Returns which Secrets the default ServiceAccount names; None where there is none to be changed."""
        if not self._may_name:
            return None
        account = self.kube.get(f"{CORE}/namespaces/{self.kube.namespace}/serviceaccounts/default")
        if account is None:
            return None
        return [str(each["name"]) for each in account.get("imagePullSecrets") or []]

    def _name(self, secrets: list[str]) -> None:
        """Makes the default ServiceAccount name these."""
        metadata = {"namespace": self.kube.namespace, "name": "default"}
        named = {"imagePullSecrets": [{"name": name} for name in secrets]}
        self.kube.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata, **named})

    def _contents(self, kept: str) -> str:
        """Returns what the Secret is to have: a login that is there stays while this machine has none.

        Raises RegistryRefused where a login can't be read, and none is there.
        """
        try:
            login = self.login()
        except RegistryRefused:
            if not kept:
                raise
            return kept
        if login is None and not self._is_empty(kept):
            return kept
        # Pods name the Secret, whether or not the registry needs a login.
        assert self.address is not None
        auths = {self.address.host: {"auth": login.basic.partition(" ")[2]}} if login else {}
        return json.dumps({"auths": auths})

    def _is_empty(self, contents: str) -> bool:
        """Returns whether no login for this registry is in it."""
        try:
            return not json.loads(contents)["auths"].get(self.address.host if self.address else "")
        except (ValueError, TypeError, KeyError, AttributeError):
            return True

    @property
    def _path(self) -> str:
        return f"{CORE}/namespaces/{self.kube.namespace}/secrets/{self.secret}"


def pull_secret(
    settings: Settings,
    instance: Instance,
    kube: Kube,
    registry: str,
    *,
    secret: str,
    needs: str,
    is_wanted: bool = True,
    is_for_others: bool = True,
    cluster_goes: bool = False,
) -> PullSecret:
    """Returns the step, as PullSecret has it, for `registry`, HOST/PATH or empty; `needs` comes before it."""
    address = parse(registry) if registry else None
    login = partial(login_for, address.host if address else "")
    return PullSecret(
        *(instance, kube, address, login, secret),
        is_wanted=is_wanted and settings.login_in_pods,
        is_for_others=is_for_others,
        cluster_goes=cluster_goes,
        needs=(needs,),
    )


def _kept(secret: dict[str, Any] | None) -> str:
    """Returns the logins that a Secret has; empty where there is none."""
    text = (secret or {}).get("data", {}).get(".dockerconfigjson", "")
    return base64.b64decode(text).decode(errors="replace")
