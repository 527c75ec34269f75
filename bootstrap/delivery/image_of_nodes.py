"""Finds an image that the nodes of a Kubernetes have already, whatever is in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from bootstrap.errors import ImagesOutOfReach
from bootstrap.kube.api import CORE, Kube
from bootstrap.options import is_image
from bootstrap.settings import environment_name

# What one does where none is found, or the one that was found does not do.
NAME_ONE = f"name an image that the nodes have, whatever is in it: {environment_name('serving_image')}=IMAGE"
_SANDBOX = re.compile(r"(^|/)pause(-[a-z0-9]+)?:")
# So many nodes that have the image are named to the scheduler.
_MOST_NODES = 100


def image_of_nodes(kube: Kube, architecture: str) -> tuple[str, list[str]]:
    """Returns an image that nodes have, which may be any, and those nodes. Raises ImagesOutOfReach.

    The best is that of pods' sandboxes, as no node removes it; then the one that most of them have. A kubelet
    tells of the 50 largest (https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/,
    nodeStatusMaxImages).
    """
    having: dict[str, list[str]] = {}
    for node in kube.items(f"{CORE}/nodes"):
        for reference in _images(node) if _is_fit(node, architecture) else ():
            having.setdefault(reference, []).append(node["metadata"]["name"])
    if not having:
        raise ImagesOutOfReach(
            f"no node for {architecture} that takes pods says which images it has",
            hint=NAME_ONE,
        )
    best = min(having, key=lambda image: (not _SANDBOX.search(image), -len(having[image]), image))
    return best, having[best][:_MOST_NODES]


def _images(node: Mapping[str, Any]) -> set[str]:
    """Returns the images of a node by their tags: by a digest a runtime may not know one that was loaded."""
    images = node.get("status", {}).get("images") or []
    names = {str(name) for image in images for name in image.get("names") or []}
    return {name for name in names if "@" not in name and is_image(name)}


def _is_fit(node: Mapping[str, Any], architecture: str) -> bool:
    """Returns whether pods may run there that tolerate nothing, of programs for Linux."""
    spec, status = node.get("spec", {}), node.get("status", {})
    conditions = {each.get("type"): each.get("status") for each in status.get("conditions") or []}
    is_tainted = any(each.get("effect") != "PreferNoSchedule" for each in spec.get("taints") or [])
    machine = {key: status.get("nodeInfo", {}).get(key) for key in ("architecture", "operatingSystem")}
    takes_pods = conditions.get("Ready") == "True" and not is_tainted and not spec.get("unschedulable")
    return takes_pods and machine == {"architecture": architecture, "operatingSystem": "linux"}
