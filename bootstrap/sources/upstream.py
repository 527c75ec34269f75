"""Source `upstream`: fetches released programs and public images, and verifies each of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from bootstrap.download import sha256
from bootstrap.settings import DEBUGPY_VERSION, KUBERAY_VERSION, RAY_VERSION, ROOT
from bootstrap.sources.extensions import Extensions
from bootstrap.sources.go import Go, GoPrograms, front_door
from bootstrap.sources.image_build import ImageBuild
from bootstrap.sources.image_files import ray_image_files
from bootstrap.sources.pulled_image import PulledImage
from bootstrap.sources.releases import Releases
from bootstrap.sources.source import Source, supply
from bootstrap.sources.workspace_image import workspace_image
from rayside.steps.step import Condition, Report, Status
from rayside.system.shell import Shell


@dataclass(frozen=True)
class RayImage:
    """The public Ray image with debugpy added: pulls the public one, then builds ours on it."""

    base: PulledImage
    build: ImageBuild
    name: str = "ray-image"
    title: str = f"image with Ray {RAY_VERSION} and debugpy {DEBUGPY_VERSION}"

    @property
    def needs(self) -> tuple[str, ...]:
        return self.base.needs

    def check(self) -> Status:
        return self.build.check()

    def apply(self, report: Report) -> None:
        """Pulls, then builds. Raises the errors of both."""
        if self.base.check().condition is Condition.MISSING:
            self.base.apply(report)
        self.build.apply(report)


def upstream(releases: Releases, extensions: Extensions, shell: Shell) -> Source:
    """Returns the source, with these extensions in the workspace's image."""
    cache_folder, hashed = releases.settings.cache_folder, cache(sha256)
    go = Go(shell, cache_folder)
    # KubeRay's kustomization is in its operator's Go module.
    manifests = GoPrograms(
        shell,
        go,
        cache_folder,
        name="kuberay-manifests",
        title=f"KubeRay {KUBERAY_VERSION}'s manifests",
        module="kuberay",
        version=KUBERAY_VERSION,
        builds=(),
        along=("github.com/ray-project/kuberay/ray-operator", "config"),
    )
    door = front_door(shell, go, cache_folder, releases.images)
    base = releases.ray
    ray = RayImage(
        base,
        ImageBuild(
            name="ray-image",
            title="the Ray image",
            repository="rayside/ray",
            context=ROOT / "image" / "ray",
            dockerfile="upstream.Dockerfile",
            arguments={"BASE": base.reference},
            extra=ray_image_files(),
            cache_folder=cache_folder,
            hashed=hashed,
            architecture=releases.images,
        ),
    )
    workspace = workspace_image(
        *(ray.build.reference, cache_folder),
        extensions=extensions.variant.extensions,
        hashed=hashed,
        architecture=releases.images,
    )
    programs = (releases.kind, releases.kubectl, releases.kubectl_ray, releases.oras)
    clients = (releases.client,) if releases.images else ()
    here, linux = f"{releases.system}/{releases.architecture}", f"linux/{releases.architecture}"
    supplies = (
        *extensions.supplies,
        *(supply(each, "program", each.file, digest=each.recorded, platform=here) for each in programs),
        supply(go, "wheel", go.requirement, platform=here),
        supply(door, "program", door.folder / door.name, platform=here),
        supply(manifests, "manifest", manifests.folder / "config" / "default", name="kuberay"),
        supply(ray, "image", base.reference, name="ray-base", digest=base.recorded, platform=linux),
        supply(ray, "image", ray.build.reference, name="ray", platform=linux),
        supply(workspace, "image", workspace.reference, name="workspace", platform=linux),
        *(
            supply(each, "image", each.reference, name=name, digest=each.recorded, platform=linux)
            for name, each in (("operator", releases.operator), ("node", releases.node))
        ),
    )
    images = (ray, workspace, releases.operator, releases.node)
    return Source("upstream", supplies, (extensions, *programs, *clients, go, manifests, door, *images))
