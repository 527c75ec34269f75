"""Leads a host's name to the front door of a workshop, by the Ingress controller that a cluster has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bootstrap.errors import NoIngressClass
from bootstrap.kube import rights
from bootstrap.kube.api import Kube, path_of
from rayside.errors import Forbidden

_GROUP = "networking.k8s.io"
_VERSION = f"{_GROUP}/v1"
_CLASSES = f"/apis/{_VERSION}/ingressclasses"
# Kubernetes itself takes the class with this annotation, where an Ingress names none.
_IS_DEFAULT = "ingressclass.kubernetes.io/is-default-class"
# As the name of a class: none is made, for a route of the user's own leads to the door, as of a Gateway.
_NONE = "none"
# The door's Service has a port of this name and number for it. Docs name both: a Gateway's user does, too.
PORT_NAME, PORT = "http", 8080


@dataclass(frozen=True)
class Ingress:
    """A host whose TLS ends at the cluster's controller, which leads to the door by plain HTTP.

    Attributes:
        host: its name in DNS.
        class_name: the IngressClass; empty for the cluster's default one, `none` for no object of ours.
        tls_secret: the Secret with its certificate; empty for the controller's own.
    """

    host: str
    class_name: str = ""
    tls_secret: str = ""

    @property
    def url(self) -> str:
        return f"https://{self.host}"

    def documents(self, metadata: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Returns the object, which leads to the Service of the same name, or nothing."""
        if self.class_name == _NONE:
            return []
        service = {"name": metadata["name"], "port": {"name": PORT_NAME}}
        path = {"path": "/", "pathType": "Prefix", "backend": {"service": service}}
        tls = {"hosts": [self.host], **({"secretName": self.tls_secret} if self.tls_secret else {})}
        spec = {
            **({"ingressClassName": self.class_name} if self.class_name else {}),
            "tls": [tls],
            "rules": [{"host": self.host, "http": {"paths": [path]}}],
        }
        return [{**_ingress(metadata), "spec": spec}]

    def require(self, kube: Kube) -> None:
        """Raises Forbidden where a right is lacking to make it, and NoIngressClass where nobody serves it."""
        if self.class_name == _NONE:
            return
        rights.require(kube, rights.INGRESS)
        try:
            classes = {each["metadata"]["name"]: each["metadata"] for each in kube.items(_CLASSES)}
        except Forbidden:
            # Who may make an Ingress need not see the classes, which are the whole cluster's.
            return
        listed = f"it has {', '.join(sorted(classes))}" if classes else "it has none"
        if self.class_name and self.class_name not in classes:
            raise NoIngressClass(
                f"workshop_ingress_class is {self.class_name}, and that Kubernetes has no such "
                f"IngressClass: {listed}",
                hint="name one that is there, or install an Ingress controller there",
            )
        if not self.class_name and not any(
            (each.get("annotations") or {}).get(_IS_DEFAULT) == "true" for each in classes.values()
        ):
            raise NoIngressClass(
                f"no IngressClass of that Kubernetes is the default one: {listed}",
                hint="set workshop_ingress_class to one of them"
                if classes
                else "install an Ingress controller there, or leave out workshop_host",
            )


def there(kube: Kube, metadata: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the Ingress of that name, whoever made it; None also for who may see none, and so made none."""
    try:
        return kube.get(path_of(_ingress(metadata)))
    except Forbidden:
        return None


def _ingress(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": _VERSION, "kind": "Ingress", "metadata": dict(metadata)}
