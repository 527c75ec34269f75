"""Has nodes pull a bundle's images from a pod in their own cluster, where there is no registry.

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
from bootstrap.delivery.loader import loader, parts
from bootstrap.errors import ClusterUnreachable, ImagesOutOfReach, NotOurs, NotReady, PortTaken, RaysideError
from bootstrap.instance import Instance
from bootstrap.kube import operator, trouble
from bootstrap.kube.api import CORE, Kube, made_here, path_of
from bootstrap.kube.forwarder import forwarded
from bootstrap.registry.address import Address
from bootstrap.registry.exchange import Exchange
from bootstrap.registry.login import Login
from bootstrap.registry.registry import Registry
from bootstrap.settings import ROOT, environment_name
from bootstrap.sources.source import Archives
from bootstrap.step import Report, Status, drifted, missing, pending, ready
from bootstrap.steps.differences import SPEC, difference, made_of
from bootstrap.steps.removal import removed

MANIFEST = ROOT / "k8s" / "image-server.yaml"
# Kubernetes gives away ports of this band last, unless somebody names one: with its default range of ports,
# kubernetes.io/blog/2023/05/11/nodeport-dynamic-and-static-allocation.
_FIRST_PORT, _PORTS = 30000, 86
# The server's ports: for nodes, and on the pod's own loopback for who brings images.
_PORT, _UPLOADS = 5000, 5001
_LABEL, _NOTE = "rayside.dev/image-server", "contents"
_USER = "rayside"
# Files are larger than their contents, by their last blocks, and by what is on its way.
_ROOM = 1.05
_MIB = 1024 * 1024
# So many nodes that have the image are named to the scheduler.
_MOST_NODES = 100
_FILES = {"program": "its program", "manifest": "the manifest"}


def port_of(instance: Instance, name: str, given: int) -> int:
    """Returns the port of the nodes: the given one, else one that follows from where the pod is."""
    return given or _FIRST_PORT + zlib.crc32(f"{instance.namespace}/{name}".encode()) % _PORTS


@dataclass(frozen=True)
class ImageServer:
    """A pod serves images, empty at first, at a port of each node.

    Attributes:
        base: what the names of its objects begin with.
        port: that of the nodes.
        image: the one that it runs; empty: one that nodes say they have.
        program: the server's, a static one for Linux.
        version: tells one program from another.
        architecture: of the program and of the images, as Go calls it.
        size: bytes that it has to keep.
    """

    instance: Instance
    kube: Kube
    base: str
    port: int
    image: str
    program: Path
    version: str
    architecture: str
    size: int
    needs: tuple[str, ...]
    name: str = "image-server"
    title: str = "server of images in the cluster"
    patience: float = 120.0

    def check(self) -> Status:
        pod = self.pod()
        if pod is None:
            return missing("there is none")
        if not made_here(pod):
            raise self._not_ours("pod")
        if "deletionTimestamp" in pod["metadata"]:
            return pending("the earlier one is being removed")
        if (was := made_of(pod)) != self._made_of:
            return drifted(difference(was, self._made_of, _FILES))
        if pod.get("status", {}).get("phase") in ("Failed", "Succeeded"):
            return missing("it has ended")
        if any(self.kube.get(path_of(each)) is None for each in self._beside()):
            return missing("not all of it is there")
        if wait := trouble.waiting(pod):
            error = trouble.first_problem(self.kube, self.selector)
            return pending(f"{error.message}; {error.hint}" if error else wait)
        return ready(f"127.0.0.1:{self.port} of each node leads to {self.label}")

    def apply(self, report: Report) -> None:
        """Makes it. Raises ImagesOutOfReach, NotOurs, PortTaken, OSError."""
        self._make_secret()
        report("bringing its program")
        for document in (*self._programs(), *self._beside()):
            self._make(document)
        pod = self.pod()
        # One that was evicted starts no more.
        if pod and removed(self.kube, self._path, f"the pod {self.label}", report):
            raise NotReady(f"the pod {self.label} could not be removed", hint="run ./invokew up again")
        image, nodes = (self.image, []) if self.image else self._image_of_nodes()
        report(f"starting it from {image}")
        self.kube.apply(self.manifest(image, nodes))

    def undo(self, report: Report) -> str | None:
        """Removes it, unless an operator of ours, which other clusters use, has its image from there.

        Returns what is left, where the API can't be asked.
        """
        try:
            if any(image.startswith(f"{self.registry}/") for image in operator.images_of_ours(self.kube)):
                return f"the pod {self.label} stays: KubeRay's operator has its image from it"
            present = [path for path in self._paths() if self.kube.get(path)]
        except RaysideError as error:
            return f"the pod {self.label} could not be removed from {self.kube.namespace}: {error.message}"
        if present:
            report(f"removing the pod {self.label}")
        left = [removed(self.kube, path, path.rpartition("/")[2], lambda _: None) for path in present]
        return next(filter(None, left), None)

    @property
    def label(self) -> str:
        """Returns the name of the pod, and of all that it takes."""
        return f"{self.base}-images"

    @property
    def selector(self) -> str:
        return f"{_LABEL}={self.label}"

    @property
    def registry(self) -> str:
        """Returns where nodes pull from."""
        return f"127.0.0.1:{self.port}"

    def pod(self) -> dict[str, Any] | None:
        return self.kube.get(self._path)

    def password(self) -> str:
        """Returns what one has to have who brings images; empty where it has none yet."""
        secret = self.kube.get(f"{CORE}/namespaces/{self.kube.namespace}/secrets/{self.label}") or {}
        return base64.b64decode(secret.get("data", {}).get("password", "")).decode(errors="replace")

    def noted(self) -> dict[str, str]:
        """Returns what `note` was told last; nothing where it was told nothing."""
        path = path_of(self._config_map(_NOTE))
        return dict((self.kube.get(path) or {}).get("data") or {})

    def note(self, data: Mapping[str, str]) -> None:
        """Keeps it beside the pod. Raises NotOurs."""
        self._make(self._config_map(_NOTE, data=data))

    def manifest(self, image: str, nodes: Sequence[str]) -> dict[str, Any]:
        """Returns the pod, which runs `image`; on one of these nodes, if there are any."""
        document = dict(yaml_file.read(MANIFEST))
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
        server["env"][0]["valueFrom"]["secretKeyRef"]["name"] = self.label
        room = f"{int(self.size * _ROOM / _MIB) + 64}Mi"
        server["resources"]["requests"]["ephemeral-storage"] = room
        boot, _, contents = spec["volumes"]
        contents["emptyDir"]["sizeLimit"] = room
        boot["projected"]["sources"] = [
            {"configMap": {"name": f"{self.label}-{number}"}} for number in ("loader", *numbers)
        ]
        return document

    def _programs(self) -> Iterator[dict[str, Any]]:
        """Yields the ConfigMaps with the program's parts, and one with what joins them."""
        files = {"loader": loader(self.architecture)}
        files |= {str(number): part for number, part in enumerate(self._parts)}
        for name, content in files.items():
            yield self._config_map(name, binaryData={name: base64.b64encode(content).decode()})

    def _config_map(self, name: str, **fields: Mapping[str, str]) -> dict[str, Any]:
        metadata = {**self._metadata(), "name": f"{self.label}-{name}"}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **fields}

    def _beside(self) -> tuple[dict[str, Any], ...]:
        """Returns the Service by which nodes reach the pod, and a policy that lets them, and it nowhere."""
        labels, metadata = {_LABEL: self.label}, self._metadata()
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
        return (
            {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service},
            {
                "apiVersion": "networking.k8s.io/v1",
                "kind": "NetworkPolicy",
                "metadata": metadata,
                "spec": policy,
            },
        )

    def _make_secret(self) -> None:
        if not self.password():
            self._make(
                {
                    "apiVersion": "v1",
                    "kind": "Secret",
                    "metadata": self._metadata(),
                    "stringData": {"password": secrets.token_urlsafe(24)},
                }
            )

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
                hint=f"name another one: {environment_name('serving_nodeport')}=PORT",
            ) from None

    def _image_of_nodes(self) -> tuple[str, list[str]]:
        """Returns an image that nodes have, which may be any, and those nodes. Raises ImagesOutOfReach.

        The best is that of pods' sandboxes, as no node removes it; then the one that most of them have.
        """
        having: dict[str, list[str]] = {}
        for node in filter(self._is_fit, self.kube.items(f"{CORE}/nodes")):
            for image in node["status"].get("images") or []:
                for reference in image.get("names") or []:
                    if "@" not in reference:
                        having.setdefault(reference, []).append(node["metadata"]["name"])
        if not having:
            raise ImagesOutOfReach(
                f"no node for {self.architecture} that takes pods says which images it has",
                hint=f"name one that they have, whatever is in it: {environment_name('serving_image')}=IMAGE",
            )
        best = min(having, key=lambda image: ("pause" not in image, -len(having[image]), image))
        return best, having[best][:_MOST_NODES]

    def _is_fit(self, node: Mapping[str, Any]) -> bool:
        spec, status = node.get("spec", {}), node.get("status", {})
        ready = any(
            each.get("type") == "Ready" and each.get("status") == "True" for each in status["conditions"]
        )
        tainted = any(each.get("effect") != "PreferNoSchedule" for each in spec.get("taints") or [])
        same = status.get("nodeInfo", {}).get("architecture") == self.architecture
        return ready and same and not tainted and not spec.get("unschedulable")

    @cached_property
    def _parts(self) -> list[bytes]:
        return parts(self.program.read_bytes())

    @property
    def _made_of(self) -> dict[str, Any]:
        return {
            "program": self.version.removeprefix("sha256:")[:12],
            "serving_nodeport": self.port,
            "manifest": cache.key(MANIFEST.read_text()),
        }

    def _metadata(self, annotations: Mapping[str, str] | None = None) -> dict[str, Any]:
        labels = {**self.instance.labels, _LABEL: self.label}
        metadata = {"name": self.label, "namespace": self.kube.namespace, "labels": labels}
        return {**metadata, "annotations": dict(annotations)} if annotations else metadata

    @property
    def _path(self) -> str:
        return f"{CORE}/namespaces/{self.kube.namespace}/pods/{self.label}"

    def _paths(self) -> list[str]:
        """Returns where all of it is; how many parts the program has, need not be known any more."""
        core = f"{CORE}/namespaces/{self.kube.namespace}"
        maps = self.kube.items(f"{core}/configmaps", self.selector)
        return [
            self._path,
            *map(path_of, self._beside()),
            f"{core}/secrets/{self.label}",
            *(f"{core}/configmaps/{each['metadata']['name']}" for each in maps),
        ]

    def _not_ours(self, kind: str) -> NotOurs:
        return NotOurs(
            f"there is a {kind} {self.label} in {self.kube.namespace} that Rayside did not make",
            hint="give this cluster another name: --name NAME",
        )


@dataclass(frozen=True)
class ServedImages:
    """The server has these images, so that nodes can pull them."""

    server: ImageServer
    archives: Archives
    references: tuple[str, ...]
    needs: tuple[str, ...] = ("image-server",)
    name: str = "images"
    title: str = "images that the nodes pull"

    def check(self) -> Status:
        if self.server.noted() != self._note(self.server.pod()):
            return missing("the server does not have them yet")
        return ready(f"{len(self.references)} images, from {self.server.registry} of each node")

    def apply(self, report: Report) -> None:
        """Brings what it lacks. Raises BadBundle, and what a registry does."""
        pod = self.server.pod()
        login = Login(_USER, self.server.password())
        with forwarded(self.server.kube, self.server.selector, _UPLOADS) as local:
            registry = Registry(Exchange(Address(f"127.0.0.1:{local}")), login, report)
            self.archives.send(registry, self.references, report)
        self.server.note(self._note(pod))

    def _note(self, pod: Mapping[str, Any] | None) -> dict[str, str]:
        """Returns what says that a pod has them: they go with it."""
        return {"images": " ".join(self.references), "pod": pod["metadata"].get("uid", "") if pod else ""}
