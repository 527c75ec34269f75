"""Reads the token of a RayJob's own cluster from its Secret."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from bootstrap.kube.api import CORE, Kube


def read(kube: Kube, rayjob: Mapping[str, Any], cluster_selector: str) -> bytes | None:
    """None where KubeRay has not made it yet. Raises ClusterUnreachable.

    Args:
        cluster_selector: the label of what belongs to the RayJob's cluster.
    """
    options = (rayjob["spec"].get("rayClusterSpec") or {}).get("authOptions") or {}
    secret_name = options.get("secretName")
    path = f"{CORE}/namespaces/{kube.namespace}/secrets"
    # By label where the RayJob names no Secret: KubeRay shortens the name where it is long.
    secrets = [kube.get(f"{path}/{secret_name}") or {}] if secret_name else kube.items(path, cluster_selector)
    for secret in secrets:
        if "auth_token" in secret.get("data", {}):
            return base64.b64decode(secret["data"]["auth_token"])
    return None
