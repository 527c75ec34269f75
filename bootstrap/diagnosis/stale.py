"""Compares the images that pods of a kind node run with those of the Docker engine that has the node."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from bootstrap import docker_engine
from bootstrap.delivery.loaded import Listed, configuration_of, listed_in
from bootstrap.errors import CommandFailed
from bootstrap.shell import Shell
from bootstrap.sources.references import full_name, tagged
from bootstrap.steps.kind_cluster import nodes_behind

if TYPE_CHECKING:
    from docker import DockerClient


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
                    shell = Shell()
                    listed = listed_in(shell, node)
                    # Each is asked once, however many containers run it.
                    configuration = cache(partial(_configuration, shell, node, listed))
                    rows += _rows(here, listed, configuration, client)
    return [{**row, "cluster": cluster} for row in rows]


def _rows(
    pods: Sequence[Mapping[str, Any]],
    node: Listed,
    configuration: Callable[[str], str],
    client: DockerClient,
) -> Iterator[dict[str, str]]:
    engines: dict[str, str] = {}
    for pod in pods:
        for status in (pod.get("status") or {}).get("containerStatuses") or []:
            image = _image(pod, status["name"])
            # The kubelet's id is the configuration's digest where the image came in a file, and else a name
            # and the manifest's.
            runs = configuration(str(status.get("imageID", "")).rpartition("@")[2])
            if not image or not runs or "running" not in status.get("state", {}):
                continue
            if image not in engines:
                has = docker_engine.image(client, image)
                engines[image] = str(has["Id"]) if has else ""
            engine = engines[image]
            # An engine that keeps images in containerd names one by its manifest.
            engine_configuration = configuration(engine) or engine
            if engine_configuration not in ("", runs):
                manifest = node.digests.get(full_name(tagged(image, "latest")), "")
                there = configuration(manifest) or manifest
                yield {
                    "pod": pod["metadata"]["name"],
                    "container": status["name"],
                    "image": image,
                    "runs": runs,
                    "node": engine if there == engine_configuration else there,
                    "engine": engine,
                }


def _image(pod: Mapping[str, Any], container: str) -> str:
    specs = pod.get("spec", {}).get("containers", [])
    return next((str(spec.get("image", "")) for spec in specs if spec.get("name") == container), "")


def _configuration(shell: Shell, node: str, listed: Listed, digest: str) -> str:
    """Returns the digest of an image's configuration, of itself or of a manifest's; empty where none."""
    return digest if digest in listed.digests else configuration_of(shell, node, listed, digest)
