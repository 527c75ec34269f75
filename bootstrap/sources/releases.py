"""URLs and versions of the released programs and public images of source `upstream`."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from bootstrap import docker_engine
from bootstrap.download import Download
from bootstrap.settings import KIND_VERSION, KUBERAY_VERSION, KUBERNETES_VERSION, RAY_VERSION, Settings
from bootstrap.sources import extensions
from bootstrap.sources.digests import RECORDED, Digests
from bootstrap.sources.program import Program, released_oras
from bootstrap.sources.pulled_image import PulledImage
from bootstrap.sources.references import tagged
from bootstrap.sources.registry_client import RegistryClient
from rayside.system.shell import Shell

_SYSTEMS = ("linux", "darwin")
# Names of architectures on release pages, and in VS Code.
_ARCHITECTURES = (("amd64", "x64"), ("arm64", "arm64"))


@dataclass(frozen=True)
class Releases:
    """The steps that fetch each of them, for one system and architecture."""

    settings: Settings
    shell: Shell = field(default_factory=Shell)
    # File with the digests that the repository records.
    recorded: Path = RECORDED
    # System and architecture of the programs, as release pages name them.
    system: str = platform.system().lower()
    architecture: str = docker_engine.normal(platform.machine())
    # Architecture of the images; empty: the engine's.
    images: str = ""

    @cached_property
    def kind(self) -> Program:
        release = f"{self.settings.kind_releases.rstrip('/')}/v{KIND_VERSION}"
        url = f"{release}/kind-{self.system}-{self.architecture}"
        return self._program("kind", KIND_VERSION, "kind_releases", url, f"{url}.sha256sum")

    @cached_property
    def kubectl(self) -> Program:
        release = f"{self.settings.kubernetes_releases.rstrip('/')}/v{KUBERNETES_VERSION}"
        url = f"{release}/bin/{self.system}/{self.architecture}/kubectl"
        return self._program("kubectl", KUBERNETES_VERSION, "kubernetes_releases", url, f"{url}.sha256")

    @cached_property
    def kubectl_ray(self) -> Program:
        release = f"{self.settings.kuberay_releases.rstrip('/')}/v{KUBERAY_VERSION}"
        url = f"{release}/kubectl-ray_v{KUBERAY_VERSION}_{self.system}_{self.architecture}.tar.gz"
        # KubeRay's GoReleaser file names neither the project nor the checksum file. GoReleaser then takes
        # the repository's name (the first), or the module's or program's name (the second).
        sums = [
            f"{release}/{project}_{KUBERAY_VERSION}_checksums.txt" for project in ("kuberay", "kubectl-ray")
        ]
        return self._program(
            "kubectl-ray", KUBERAY_VERSION, "kuberay_releases", url, *sums, member="kubectl-ray"
        )

    @cached_property
    def oras(self) -> Program:
        return released_oras(self.settings, self._digests, self.system, self.architecture)

    @cached_property
    def client(self) -> RegistryClient:
        """Returns the step that provides this machine's registry client."""
        return RegistryClient(self.settings, self.shell)

    @cached_property
    def ray(self) -> PulledImage:
        """Returns the published image of Ray."""
        # https://hub.docker.com/r/rayproject/ray: a tag without a suffix is for x86-64 alone.
        suffix = "-aarch64" if self.architecture == "arm64" else ""
        title = f"public image of Ray {RAY_VERSION}"
        return self._public("ray-base-image", title, "ray_image", f"{RAY_VERSION}{suffix}")

    @cached_property
    def operator(self) -> PulledImage:
        """Returns the published image of KubeRay's operator."""
        title = f"KubeRay {KUBERAY_VERSION}'s operator"
        return self._public("operator-image", title, "operator_image", f"v{KUBERAY_VERSION}")

    @cached_property
    def node(self) -> PulledImage:
        """Returns the published image of kind's node."""
        title = f"kind's node with Kubernetes {KUBERNETES_VERSION}"
        return self._public("node-image", title, "node_image", f"v{KUBERNETES_VERSION}")

    def _program(
        self, name: str, version: str, setting: str, url: str, *checksums: str, member: str | None = None
    ) -> Program:
        return Program(
            name=name,
            title=f"{name} {version}",
            released=Download(url, setting),
            checksums=tuple(Download(other, setting) for other in checksums),
            folder=self.settings.cache_folder / f"{name}-{version}-{self.system}-{self.architecture}",
            digests=self._digests,
            member=member,
        )

    def _public(self, name: str, title: str, setting: str, tag: str) -> PulledImage:
        """Returns the image with our tag, held to its recorded digest in any registry; or with the user's."""
        image = str(getattr(self.settings, setting))
        reference = tagged(image, tag)
        record = f"{name} {tag}" if reference != image else reference
        record = "" if "@" in image else record
        pulled = PulledImage(name, title, reference, setting, self._digests, record)
        return replace(pulled, architecture=self.images, client=self.client) if self.images else pulled

    @cached_property
    def _digests(self) -> Digests:
        return Digests(self.settings.cache_folder, self.recorded)


def published(settings: Settings) -> dict[str, Callable[[], str]]:
    """Returns a function for each artifact, by recorded name, that gets its digest from its publisher.

    Artifacts are the pinned programs, images and extensions. Packages have lock files of their languages,
    among them KubeRay's manifests, which are in a Go module.
    """
    asking: dict[str, Callable[[], str]] = {}
    for system in _SYSTEMS:
        for architecture, editors_name in _ARCHITECTURES:
            releases = Releases(settings, system=system, architecture=architecture)
            programs = (releases.kind, releases.kubectl, releases.kubectl_ray, releases.oras)
            images = (releases.ray, releases.operator, releases.node)
            asking |= {each.record: each.published for each in (*programs, *images) if each.record}
            asking |= extensions.published(settings, f"{system}-{editors_name}")
    return asking
