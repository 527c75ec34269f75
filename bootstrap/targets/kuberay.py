"""Lists the steps that make a standing Ray cluster, with the debugger beside it, in Kubernetes."""

from __future__ import annotations

from pathlib import Path

from bootstrap.carrier.supervisor import Forward
from bootstrap.instance import Instance
from bootstrap.kube.api import Kube, head_selector
from bootstrap.relay.config import Masking
from bootstrap.shell import Shell
from bootstrap.sources.source import Images
from bootstrap.step import Step
from bootstrap.steps.forwards import Forwards
from bootstrap.steps.kuberay import CustomResources, KubeRay, OperatorManifest
from bootstrap.steps.package_index import PackageIndex
from bootstrap.steps.ray_cluster import (
    DASHBOARD_PORT,
    RELAY_PORT,
    WORKSPACE_PORT,
    KubeRayToken,
    RayCluster,
    WorkspacePassword,
)


def stack(
    instance: Instance,
    kube: Kube,
    shell: Shell,
    images: Images,
    manifest: OperatorManifest,
    *,
    workers: int,
    patience: float,
    masking: Masking,
    cluster_goes: bool,
    package_index: str = "",
    trusted: str = "",
    package_proxy: str = "",
    ground: str = "kubeconfig",
) -> list[Step]:
    """Returns the steps from KubeRay's manifests to the forwards; the head has the relay and the workspace.

    They need steps named `images` and `ground`, and those that bring kubectl and KubeRay's kustomization.

    Args:
        manifest: KubeRay's manifests, which name the operator's image.
        workers: how many worker pods there are.
        patience: how many seconds Ray may take to come up.
        masking: what the relay masks.
        cluster_goes: `down` removes Kubernetes itself, in less time than one of these takes to be undone.
        package_index: where pip and uv in pods have packages from; empty for their own defaults.
        trusted: certificates of authorities that they trust besides the public ones, in PEM; or empty.
        package_proxy: the HTTP proxy by which they reach it; empty for none.
        ground: names the step after which objects can be made in the namespace.
    """
    packages = PackageIndex(
        instance, kube, package_index, trusted, package_proxy, cluster_goes, needs=(ground,)
    )
    return [
        manifest,
        CustomResources(kube, manifest, cluster_goes, needs=(ground, manifest.name)),
        KubeRay(kube),
        WorkspacePassword(instance, kube, cluster_goes, needs=(ground,)),
        packages,
        RayCluster(instance, kube, images, workers, patience, packages, masking, cluster_goes),
        KubeRayToken(instance, kube),
        forwards(instance, kube, shell, manifest.kubectl),
    ]


def forwards(instance: Instance, kube: Kube, shell: Shell, kubectl: Path) -> Forwards:
    """Returns the step that leads the instance's ports into the head's pod."""
    ports = (
        Forward("dashboard", instance.ports.dashboard, DASHBOARD_PORT),
        Forward("workspace", instance.ports.workspace, WORKSPACE_PORT),
        Forward("relay", instance.ports.relay, RELAY_PORT, speaks="dap"),
    )
    return Forwards(shell, kube, instance.folder, ports, head_selector(instance.ray_cluster), kubectl)
