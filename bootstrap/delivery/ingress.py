"""Ingress from a host name to the front door of a workshop, through the cluster's Ingress controller."""

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
# Annotation of the default class, which Kubernetes uses for an Ingress without a class.
_IS_DEFAULT = "ingressclass.kubernetes.io/is-default-class"
# Class name for no Ingress object: the user's own route leads to the door, such as a Gateway's.
_NONE = "none"
# Port of the door's Service for the Ingress. The docs name both, for users of a Gateway.
PORT_NAME, PORT = "http", 8080


@dataclass(frozen=True)
class Ingress:
    """A host whose TLS ends at the cluster's controller, which connects to the door with plain HTTP.

    Attributes:
        host: DNS name.
        class_name: the IngressClass; empty for the cluster's default, `none` for no Ingress object.
        tls_secret: the Secret with its certificate; empty for the controller's certificate.
    """

    host: str
    class_name: str = ""
    tls_secret: str = ""

    @property
    def url(self) -> str:
        return f"https://{self.host}"

    def documents(self, metadata: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Returns the Ingress object for the Service of the same name; nothing for the class `none`."""
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
        """Raises Forbidden if this user can't create it, NoIngressClass if no controller serves it."""
        if self.class_name == _NONE:
            return
        rights.require(kube, rights.INGRESS)
        try:
            classes = {each["metadata"]["name"]: each["metadata"] for each in kube.items(_CLASSES)}
        except Forbidden:
            # Users who can create an Ingress may lack the right to list the cluster-wide classes.
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
    """Returns the existing Ingress of that name; None also if this user may read none, and so made none."""
    try:
        return kube.get(path_of(_ingress(metadata)))
    except Forbidden:
        return None


def _ingress(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": _VERSION, "kind": "Ingress", "metadata": dict(metadata)}
