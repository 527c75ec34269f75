"""Runs a pod that serves images to the nodes of its cluster, where there is no registry.

The pod runs an image that some nodes have already, whatever is in it. Its program is ours, and comes out of
ConfigMaps in parts. Nodes reach it at a port of their own, 127.0.0.1:PORT, where container runtimes ask for
no TLS, and pull by digest: docs/adr/0044.
"""

from __future__ import annotations

import base64
import json
import secrets
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from bootstrap import cache, yaml_file
from bootstrap.delivery.image_of_nodes import NAME_ONE, image_of_nodes
from bootstrap.delivery.loader import config_maps, loader, parts
from bootstrap.errors import (
    ClusterUnreachable,
    ImageMissing,
    NotOurs,
    NotReady,
    PortTaken,
    RaysideError,
)
from bootstrap.instance import Instance
from bootstrap.kube import operator, trouble
from bootstrap.kube.api import CORE, Kube, made_here, path_of
from bootstrap.settings import ROOT, environment_name
from bootstrap.step import Report, Status, drifted, missing, pending, ready
from bootstrap.steps.differences import SPEC, difference, made_of
from bootstrap.steps.removal import removed

MANIFEST = ROOT / "k8s" / "image-server.yaml"
# Kubernetes gives away ports of this band last, unless somebody names one: with its default range of ports,
# kubernetes.io/blog/2023/05/11/nodeport-dynamic-and-static-allocation.
_FIRST_PORT, _PORTS = 30000, 86
# The server's port for nodes.
_PORT = 5000
_LABEL, _NOTE = "rayside.dev/image-server", "contents"
# There has to be room for what is on its way, too, and for what has broken off a moment ago.
_ROOM = 1.25
_MIB = 1024 * 1024
_POLICIES = "/apis/networking.k8s.io/v1"
_FILES = {"program": "its program", "manifest": "the manifest"}


@dataclass(frozen=True)
class NoImageServer:
    """Nothing serves images, as they get to nodes otherwise; what served them before goes with `down`.

    Attributes:
        base: what the names of its objects begin with.
    """

    instance: Instance
    kube: Kube
    base: str
    needs: tuple[str, ...]
    name: str = "image-server"
    title: str = "server of images in the cluster"

    def check(self) -> Status:
        return ready("none is needed")

    def undo(self, report: Report) -> str | None:
        """Removes it, unless an operator of ours, which other clusters use, has its image from there.

        Returns what is left, where the API can't be asked.
        """
        try:
            return self._undone(report)
        except RaysideError as error:
            return f"a pod {self.label} may be left in {self.kube.namespace}: {error.message}"

    @property
    def label(self) -> str:
        """Returns the name of the pod, and of all that it takes."""
        return f"{self.base}-images"

    @property
    def selector(self) -> str:
        return f"{_LABEL}={self.label}"

    def pod(self) -> dict[str, Any] | None:
        return self.kube.get(self.path("pods"))

    def _undone(self, report: Report) -> str | None:
        # The Secret is made first, and goes last.
        secret = self.path("secrets")
        if not any(document and made_here(document) for document in (self.kube.get(secret), self.pod())):
            return None
        service = self.kube.get(self.path("services")) or {}
        ports = {port.get("nodePort") for port in service.get("spec", {}).get("ports") or []}
        used = operator.images_of_ours(self.kube)
        if any(image.startswith(f"127.0.0.1:{port}/") for image in used for port in ports):
            return (
                f"the pod {self.label} stays: KubeRay's operator has its image from it, and others use that; "
                f"once that has gone: kubectl --namespace {self.kube.namespace} delete "
                f"pods,services,configmaps,secrets,networkpolicies --selector {self.selector}"
            )
        report(f"removing the pod {self.label}")
        maps = self.kube.items(self.path("configmaps", ""), self.selector)
        paths = [
            *map(self.path, ("pods", "services")),
            f"{_POLICIES}/namespaces/{self.kube.namespace}/networkpolicies/{self.label}",
            *(self.path("configmaps", each["metadata"]["name"]) for each in maps),
            secret,
        ]
        left = [removed(self.kube, path, path.rpartition("/")[2], lambda _: None) for path in paths]
        return next(filter(None, left), None)

    def path(self, plural: str, name: str | None = None) -> str:
        """Returns where an object of ours is in the API; with an empty name, where all of them are."""
        label = self.label if name is None else name
        return f"{CORE}/namespaces/{self.kube.namespace}/{plural}{f'/{label}' if label else ''}"


def port_of(place: NoImageServer, given: int) -> int:
    """Returns the port of the nodes: the given one, else one that follows from where the pod is."""
    return given or _FIRST_PORT + zlib.crc32(f"{place.kube.namespace}/{place.base}".encode()) % _PORTS


@dataclass(frozen=True)
class ImageServer:
    """A pod serves images, empty at first, at a port of each node.

    Attributes:
        place: where it is, and how it goes.
        port: that of the nodes.
        image: the one that it runs; empty: one that nodes say they have.
        program: the server's, a static one for Linux.
        version: tells one program from another.
        architecture: of the program and of the images, as Go calls it.
        size: bytes of the images that it has to keep.
    """

    place: NoImageServer
    port: int
    image: str
    program: Path
    version: str
    architecture: str
    size: int
    needs: tuple[str, ...]
    name: str = NoImageServer.name
    title: str = NoImageServer.title
    patience: float = 120.0

    def check(self) -> Status:
        pod = self.place.pod()
        if pod is None:
            return missing("there is none")
        if not made_here(pod):
            raise self._not_ours("pod")
        if (was := made_of(pod)) != self._made_of:
            return drifted(difference(was, self._made_of, _FILES))
        if self._is_lost(pod):
            return missing("it has ended")
        if "deletionTimestamp" in pod["metadata"]:
            return pending("the earlier one is being removed")
        if reason := self._lacking():
            return missing(reason)
        wait = trouble.waiting(pod)
        if not wait:
            return ready(f"{self.registry} of each node leads to {self.place.label}")
        if self._is_another(pod):
            return missing("another image is set by now")
        error = self.problem()
        return pending(f"{error.message}; {self._hint(error)}" if error else wait)

    def apply(self, report: Report) -> None:
        """Makes what lacks. Raises ImagesOutOfReach, NotOurs, PortTaken, OSError."""
        pod = self.place.pod()
        is_new = self._make_secret()
        # A port that is taken is known before more is made.
        for document in self._beside():
            self._make(document)
        report("bringing its program")
        for document in self._programs():
            self._make(document)
        if pod and (is_new or self._is_another(pod) or self._is_lost(pod)):
            left = removed(self.kube, self.place.path("pods"), f"the pod {self.place.label}", report)
            if left:
                raise NotReady(left, hint="run ./invokew up again")
            pod = None
        if pod is None:
            image, nodes = (self.image, []) if self.image else image_of_nodes(self.kube, self.architecture)
            report(f"starting it from {image}")
            self.kube.apply(self.manifest(image, nodes))

    def undo(self, report: Report) -> str | None:
        """Removes it, as its place does."""
        return self.place.undo(report)

    @property
    def kube(self) -> Kube:
        return self.place.kube

    @property
    def registry(self) -> str:
        """Returns where nodes pull from."""
        return f"127.0.0.1:{self.port}"

    def password(self) -> str:
        """Returns what one has to have who brings images; empty where it has none yet. Raises NotOurs."""
        secret = self.kube.get(self.place.path("secrets"))
        if secret and not made_here(secret):
            raise self._not_ours("Secret")
        encoded = (secret or {}).get("data", {}).get("password", "")
        return base64.b64decode(encoded).decode(errors="replace")

    def problem(self) -> RaysideError | None:
        """Returns why its pod does not run; None where it does, or is on its way."""
        return trouble.first_problem(self.kube, self.place.selector)

    def noted(self) -> dict[str, str]:
        """Returns what `note` was told last; nothing where it was told nothing."""
        path = path_of(self._notes({}))
        return dict((self.kube.get(path) or {}).get("data") or {})

    def note(self, data: Mapping[str, str]) -> None:
        """Keeps it beside the pod. Raises NotOurs."""
        self._make(self._notes(data))

    # --- what it is made of --------------------------------------------------------------

    def manifest(self, image: str, nodes: Sequence[str]) -> dict[str, Any]:
        """Returns the pod, which runs `image`; on one of these nodes, if there are any."""
        document, label = dict(yaml_file.read(MANIFEST)), self.place.label
        document["metadata"] = self._metadata({SPEC: json.dumps(self._made_of, sort_keys=True)})
        spec, (server,) = document["spec"], document["spec"]["containers"]
        spec["nodeSelector"]["kubernetes.io/arch"] = self.architecture
        if nodes:
            names = {"key": "metadata.name", "operator": "In", "values": list(nodes)}
            terms = {"nodeSelectorTerms": [{"matchFields": [names]}]}
            spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        server["image"] = image
        numbers = range(len(self._parts))
        server["command"] += [f"/boot/{number}" for number in numbers]
        (password,) = (variable for variable in server["env"] if "valueFrom" in variable)
        password["valueFrom"]["secretKeyRef"]["name"] = label
        # A namespace may have a limit for all that name none.
        for bound in ("requests", "limits"):
            server["resources"][bound]["ephemeral-storage"] = self._room
        boot, _, contents = spec["volumes"]
        contents["emptyDir"]["sizeLimit"] = self._room
        boot["projected"]["sources"] = [
            {"configMap": {"name": f"{label}-{number}"}} for number in ("loader", *numbers)
        ]
        return document

    def _programs(self) -> Iterator[dict[str, Any]]:
        """Returns the ConfigMaps with the program's parts, and one with what joins them."""
        files = {"loader": loader(self.architecture)}
        files |= {str(number): part for number, part in enumerate(self._parts)}
        return config_maps(self._metadata(), files)

    def _notes(self, data: Mapping[str, str]) -> dict[str, Any]:
        metadata = {**self._metadata(), "name": f"{self.place.label}-{_NOTE}"}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(data)}

    def _beside(self) -> tuple[dict[str, Any], ...]:
        """Returns the Service by which nodes reach the pod, and a policy that lets them, and it nowhere."""
        labels, metadata = {_LABEL: self.place.label}, self._metadata()
        port = {"port": _PORT, "protocol": "TCP"}
        service = {
            "type": "NodePort",
            "selector": labels,
            "ports": [{**port, "name": "images", "targetPort": _PORT, "nodePort": self.port}],
        }
        policy = {
            "podSelector": {"matchLabels": labels},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"ports": [port]}],
        }
        kinds = (("v1", "Service", service), ("networking.k8s.io/v1", "NetworkPolicy", policy))
        return tuple(
            {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}
            for version, kind, spec in kinds
        )

    def _lacking(self) -> str:
        """Returns what is not there of that beside the pod; empty where all is."""
        service, policy = (self.kube.get(path_of(document)) for document in self._beside())
        if not service or not policy or not self.password():
            return "not all of it is there"
        nodes = [port.get("nodePort") for port in service["spec"].get("ports") or []]
        return "" if nodes == [self.port] else f"its Service has the port {nodes}"

    def _make_secret(self) -> bool:
        """Makes the password, where there is none; returns whether it did."""
        if self.password():
            return False
        data = {"password": secrets.token_urlsafe(24)}
        metadata = self._metadata()
        self._make({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data})
        return True

    def _make(self, document: Mapping[str, Any]) -> None:
        """Makes it, where nobody else has one of that name. Raises NotOurs, PortTaken."""
        present = self.kube.get(path_of(document))
        if present is not None and not made_here(present):
            raise self._not_ours(document["kind"])
        try:
            self.kube.apply(document)
        except ClusterUnreachable as error:
            # The words of k8s.io/kubernetes, pkg/registry/core/service/portallocator.
            if "provided port is" not in error.message:
                raise
            raise PortTaken(
                f"the nodes there can't have port {self.port} for images: {error.message}",
                hint=f"name another one, for all commands: {environment_name('serving_nodeport')}=PORT",
            ) from None

    @cached_property
    def _parts(self) -> list[bytes]:
        return parts(self.program.read_bytes())

    @property
    def _room(self) -> str:
        return f"{int(self.size * _ROOM / _MIB) + 64}Mi"

    @property
    def _made_of(self) -> dict[str, Any]:
        return {
            "program": self.version.removeprefix("sha256:")[:12],
            "serving_nodeport": self.port,
            "room": self._room,
            "manifest": cache.key(MANIFEST.read_text()),
        }

    def _metadata(self, annotations: Mapping[str, str] | None = None) -> dict[str, Any]:
        labels = {**self.place.instance.labels, _LABEL: self.place.label}
        metadata = {"name": self.place.label, "namespace": self.kube.namespace, "labels": labels}
        return {**metadata, "annotations": dict(annotations)} if annotations else metadata

    # --- what goes wrong -----------------------------------------------------------------

    def _is_lost(self, pod: Mapping[str, Any]) -> bool:
        """Returns whether the pod does not come back: it was evicted, or its node does not answer."""
        return trouble.is_overdue(pod) or pod.get("status", {}).get("phase") in ("Failed", "Succeeded")

    def _is_another(self, pod: Mapping[str, Any]) -> bool:
        """Returns whether a pod that does not run has another image than the one that is set by now."""
        image = pod["spec"]["containers"][0]["image"]
        return bool(self.image and image != self.image and trouble.waiting(pod))

    def _hint(self, error: RaysideError) -> str:
        if isinstance(error, ImageMissing):
            return NAME_ONE
        return error.hint

    def _not_ours(self, kind: str) -> NotOurs:
        return NotOurs(
            f"there is a {kind} {self.place.label} in {self.kube.namespace} that Rayside did not make",
            hint="give this cluster another name: --name NAME",
        )
