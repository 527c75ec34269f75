"""Compares the images that pods of a kind node run with those of the Docker engine that has the node."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bootstrap import docker_engine
from bootstrap.delivery.loaded import Listed, listed_in
from bootstrap.errors import CommandFailed
from bootstrap.shell import Shell
from bootstrap.sources.references import full_name, tagged
from bootstrap.steps.kind_cluster import nodes_behind

if TYPE_CHECKING:
    from docker import DockerClient

_CONFIGURATION = "sha256:"


def stale_images(pods: Sequence[Mapping[str, Any]], address: str) -> list[dict[str, str]]:
    """Returns a row for each container that runs another image than the engine has under the same name.

    A row has `pod`, `container`, `image`, `cluster`, and the ids of the image that the container `runs`, of
    that of the `node` and of the `engine`. Returns none where the nodes behind the API's `address` are no
    containers of this machine's engine.
    """
    behind = nodes_behind(address)
    if behind is None:
        return []
    cluster, nodes = behind
    on = {node: [pod for pod in pods if pod.get("spec", {}).get("nodeName") == node] for node in nodes}
    rows: list[dict[str, str]] = []
    with docker_engine.connected(10) as client:
        for node, here in on.items():
            # One that is stopped says nothing.
            with contextlib.suppress(CommandFailed):
                if here:
                    rows += _rows(here, listed_in(Shell(), node), client)
    return [{**row, "cluster": cluster} for row in rows]


def _rows(pods: Sequence[Mapping[str, Any]], node: Listed, client: DockerClient) -> Iterator[dict[str, str]]:
    engines: dict[str, str] = {}
    for pod in pods:
        for status in (pod.get("status") or {}).get("containerStatuses") or []:
            image, runs = _image(pod, status["name"]), _configuration(node, str(status.get("imageID", "")))
            if not image or not runs or "running" not in status.get("state", {}):
                continue
            if image not in engines:
                has = docker_engine.image(client, image)
                engines[image] = str(has["Id"]) if has else ""
            engine = engines[image]
            # An engine that keeps images in containerd names one by its manifest.
            if engine not in ("", runs, node.digests.get(runs)):
                manifest = node.digests.get(full_name(tagged(image, "latest")), "")
                yield {
                    "pod": pod["metadata"]["name"],
                    "container": status["name"],
                    "image": image,
                    "runs": runs,
                    "node": engine if engine == manifest else _configuration(node, manifest),
                    "engine": engine,
                }


def _image(pod: Mapping[str, Any], container: str) -> str:
    specs = pod.get("spec", {}).get("containers", [])
    return next((str(spec.get("image", "")) for spec in specs if spec.get("name") == container), "")


def _configuration(node: Listed, identity: str) -> str:
    """Returns the digest of an image's configuration, of the kubelet's id or a manifest's digest; or nothing.

    The kubelet's is that digest by itself where the image came in a file, and else a name and the manifest's.
    """
    manifest = identity.rpartition("@")[2]
    if manifest in node.digests:
        return manifest
    known = (name for name, digest in node.digests.items() if digest == manifest)
    return next((name for name in known if name.startswith(_CONFIGURATION)), "")
