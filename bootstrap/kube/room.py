"""Causes of unschedulable and evicted pods, and of programs that ended without a port or disk space.

The messages come from the scheduler (pkg/scheduler/framework/plugins), the kubelet
(pkg/kubelet/eviction) and the C library (strerror).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bootstrap.kube.api import CORE, Kube
from bootstrap.kube.pulls import Cause, Table
from rayside.errors import RaysideError
from rayside.plain import line

# Limit: characters of the list of the nodes' taints.
_LONGEST = 300
_MOST_NODES = "100"

_FREE = (
    "free some there; or have the kubelet's folder (--root-dir) and containerd's root on a larger disk, "
    "which on kind is the Docker engine's data-root"
)
_FULL = Cause("node-disk", "the disk of its node ran low", _FREE)

# The first match counts: with several nodes, each has its own reason in the same line.
UNSCHEDULABLE: Table = (
    (
        r"insufficient ephemeral-storage",
        Cause(
            "requests-disk",
            "no node has so much disk to give away",
            "lower resources.requests.ephemeral-storage of the pod",
        ),
    ),
    (
        r"insufficient",
        Cause("requests", "", "lower ray_workers, or what the pod requests (resources.requests)"),
    ),
    (
        r"node\.kubernetes\.io/disk-pressure",
        Cause(
            "disk-pressure",
            "the disk of a node is low, and it takes no more pods (DiskPressure)",
            _FREE,
        ),
    ),
    (
        r"node\.kubernetes\.io/memory-pressure",
        Cause("memory-pressure", "", "free memory, or lower ray_workers"),
    ),
    # These are not-ready, unreachable and unschedulable.
    (r"node\.kubernetes\.io/", Cause("node", "", "./invokew up repairs the cluster")),
    (
        r"didn't have free ports",
        Cause(
            "host-port",
            "a port of the node that it asks for (hostPort, hostNetwork) is another pod's",
            "drop hostPort, for kubectl port-forward needs none; or remove the pod that has the port",
        ),
    ),
)
UNSCHEDULABLE_ELSE = Cause("other", "", "correct the pod's nodeSelector, affinity, tolerations or volumes")
EVICTED: Table = (
    (
        r"ephemeral.storage limit|ephemeral local storage usage exceeds",
        Cause(
            "disk-limit",
            "it wrote more to disk than its limit",
            "raise resources.limits.ephemeral-storage, or have it write less: Ray's logs and what it spills "
            "are in /tmp/ray",
        ),
    ),
    (
        r"usage of emptydir volume",
        Cause(
            "volume-limit",
            "it wrote more into a volume than the volume's limit",
            "raise emptyDir.sizeLimit of that volume, or have it write less",
        ),
    ),
    (r"low on resource: (ephemeral-storage|inodes)|\[[^\]]*DiskPressure", _FULL),
    (
        r"low on resource: memory|\[[^\]]*MemoryPressure",
        Cause("node-memory", "the memory of its node ran low", "free memory, or lower ray_workers"),
    ),
)
EVICTED_ELSE = Cause("other", "", "./invokew doctor shows what the machine lacks")
# Causes by the last line of a program that ended.
ENDED: Table = (
    (
        r"address already in use|EADDRINUSE",
        Cause(
            "port",
            "a port that it listens on is taken",
            "choose another port: the containers of a pod share theirs, with hostNetwork the whole node",
        ),
    ),
    # The kernel has the same message for shared memory, and for watches of inotify.
    (
        r"^(?!.*(?:inotify|/dev/shm|torch_|sem_))[^\n]*(?:no space left on device|ENOSPC)",
        Cause("disk", "the disk that it wrote to is full", _FREE),
    ),
)
ENDED_ELSE = Cause("other", "", "correct what its last words name, then run the command again")


def taints(kube: Kube, pod: Mapping[str, Any]) -> str:
    """Returns the nodes' taints that keep the pod away, which earlier schedulers named themselves.

    Only the first hundred nodes count; empty if the nodes can't be read.
    """
    tolerations = pod.get("spec", {}).get("tolerations") or []
    try:
        nodes = (kube.get(f"{CORE}/nodes", limit=_MOST_NODES) or {}).get("items") or []
    except RaysideError:
        return ""
    found = [
        f"node {node['metadata']['name']} has the taint {{{taint.get('key')}: {taint.get('value', '')}}}"
        for node in nodes
        for taint in node.get("spec", {}).get("taints") or []
        if taint.get("effect") != "PreferNoSchedule"
        # For a cordoned node the scheduler says so itself.
        and taint.get("key") != "node.kubernetes.io/unschedulable"
        and not any(_tolerates(toleration, taint) for toleration in tolerations)
    ]
    # Kubernetes' own taints come first: they say what is wrong with a node.
    return line("; ".join(sorted(found, key=lambda told: "node.kubernetes.io/" not in told)), _LONGEST)


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    """Returns whether a toleration matches: without a key all taints, without an effect all of that key."""
    return (
        toleration.get("key") in (None, "", taint.get("key"))
        and toleration.get("effect") in (None, "", taint.get("effect"))
        and (
            toleration.get("operator") == "Exists"
            or toleration.get("value", "") == (taint.get("value") or "")
        )
    )
