"""Source `upstream` fetches released programs and public images, and verifies each of them."""

from __future__ import annotations

import platform
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bootstrap import cache, docker_engine, download
from bootstrap.download import Download
from bootstrap.errors import DownloadFailed, ImageMissing, RaysideError
from bootstrap.settings import (
    DEBUGPY_VERSION,
    KIND_VERSION,
    KUBERAY_VERSION,
    KUBERNETES_VERSION,
    RAY_VERSION,
    ROOT,
    Settings,
    environment_name,
)
from bootstrap.shell import Shell
from bootstrap.sources.digests import RECORDED, Digests
from bootstrap.sources.extensions import image_extensions
from bootstrap.sources.go import Go, GoPrograms
from bootstrap.sources.image_build import ImageBuild
from bootstrap.sources.ray_image import ray_image_files
from bootstrap.sources.source import Images
from bootstrap.sources.workspace_image import workspace_image
from bootstrap.step import Appliable, Condition, Report, Status, missing, ready

# `answers` takes at most so many seconds.
_QUICK = 3.0
_HUB = "https://registry-1.docker.io"
# In a pull the engine may be silent so many seconds: it tells nothing of the layers that it unpacks.
_UNPACKING = 600


@dataclass(frozen=True)
class Program:
    """A released program in a folder of the cache; `member` is its name where it is in a .tar.gz.

    `checksums` are the release's own, which count where no digest is recorded yet.
    """

    name: str
    title: str
    released: Download
    checksums: tuple[Download, ...]
    folder: Path
    digests: Digests
    member: str | None = None
    needs: tuple[str, ...] = ("disk",)
    patience: float = 0.0

    @property
    def file(self) -> Path:
        return self.folder / self.name

    def check(self) -> Status:
        return ready(str(self.file)) if self.file.exists() else missing("not downloaded yet")

    def apply(self, report: Report) -> None:
        """Downloads it. Raises DownloadFailed, BadChecksum."""
        asset = self.released.url.rsplit("/", 1)[1]
        fetched = _downloads(self.folder) / f"{self.folder.name}-{asset}"
        with cache.making(self.folder, report) as draft:
            if draft is None:
                return
            expected = self.digests.of(self.folder.name) or self.published()
            self.released.fetch(fetched, expected, report)
            self.digests.keep(self.folder.name, expected, report)
            program = draft / self.name
            if self.member:
                download.extract(fetched, self.member, program)
            else:
                shutil.copyfile(fetched, program)
            program.chmod(0o755)
            fetched.unlink()

    def undo(self, report: Report) -> None:
        """Does nothing: the cache stays."""

    def published(self) -> str:
        """Returns the SHA-256 that the release itself names. Raises DownloadFailed."""
        return download.published(self.checksums, self.released.url.rsplit("/", 1)[1])


@dataclass(frozen=True)
class PulledImage:
    """A public image in the engine, of the engine's architecture; `setting` is what names it.

    `record` is the name of its digest; empty where the reference itself is a digest.
    """

    name: str
    title: str
    reference: str
    setting: str
    digests: Digests
    record: str = ""
    needs: tuple[str, ...] = ("engine", "disk")
    patience: float = 0.0

    def check(self) -> Status:
        with docker_engine.connected() as client:
            image = docker_engine.image(client, self.reference)
            architecture = docker_engine.architecture(client)
        if image is None:
            return missing(f"{self.reference} is not in the Docker engine")
        if docker_engine.normal(image["Architecture"]) != architecture:
            return missing(f"{self.reference} is for {image['Architecture']}, not for {architecture}")
        digests, recorded = docker_engine.digests(image), self._recorded
        # An image that was loaded from a file has no digest: whoever may load one owns the engine.
        if recorded and digests and recorded not in digests:
            return missing(f"{self.reference} is {digests[0]}, not {recorded} as recorded")
        return ready(self.reference)

    def apply(self, report: Report) -> None:
        """Pulls it. Raises ImageMissing, DownloadFailed, WrongArchitecture, EngineNotRunning."""
        recorded = self._recorded
        repository, _, tag = self.reference.rpartition(":")
        # It is pulled by its digest, which the engine checks; the tag may be another image's by now.
        reference = f"{repository}@{recorded}" if recorded else self.reference
        with docker_engine.connected(_UNPACKING) as client:
            report(f"pulling {reference}")
            events = docker_engine.events(lambda: client.api.pull(reference, stream=True, decode=True))
            self._follow(events, report)
            docker_engine.require_architecture(client, reference)
            if recorded:
                client.api.tag(reference, repository, tag, force=True)
            elif self.record:
                got = docker_engine.digests(docker_engine.image(client, reference) or {})
                for digest in got[:1]:
                    self.digests.keep(self.record, digest, report)

    def published(self) -> str:
        """Returns the digest that the registry gives for the tag. Raises as `apply`."""
        import docker.errors

        with docker_engine.connected() as client:
            try:
                return str(client.api.inspect_distribution(self.reference)["Descriptor"]["digest"])
            except docker.errors.APIError as error:
                raise self.explained(error.explanation or str(error)) from None

    def undo(self, report: Report) -> None:
        """Does nothing: images are a cache, they stay."""

    @property
    def _recorded(self) -> str | None:
        return self.digests.of(self.record) if self.record else None

    def _follow(self, events: Iterator[dict[str, Any]], report: Report) -> None:
        layers: dict[str, tuple[int, int]] = {}
        reported = ""
        for event in events:
            if error := event.get("error"):
                raise self.explained(error)
            progress = event.get("progressDetail") or {}
            if event.get("status") == "Downloading" and progress.get("total"):
                layers[event["id"]] = progress["current"], progress["total"]
                text = "{} of {} MB".format(
                    *(sum(sizes) // 10**6 for sizes in zip(*layers.values(), strict=True))
                )
                if text != reported:
                    report(reported := text)

    def explained(self, error: str) -> RaysideError:
        """Returns the error that a registry's words mean, with the one thing to do."""
        words = error.lower()
        recorded = f" as the image that is recorded, {self._recorded}" if self._recorded else ""
        message = f"{self.reference} can't be pulled{recorded}: {error}"
        login = f"docker login {_registry(self.reference)}".rstrip()
        other = f"name an image that is there in {environment_name(self.setting)}"
        if "toomanyrequests" in words or "rate limit" in words:
            return DownloadFailed(message, hint=f"{login}, which raises the limit")
        # Docker Hub's words for a name that it doesn't have are that it "may require 'docker login'".
        if "does not exist" in words or "not found" in words or "manifest unknown" in words:
            return ImageMissing(message, hint=other)
        if "unauthorized" in words or "denied" in words or "no basic auth" in words:
            return ImageMissing(message, hint=login)
        return DownloadFailed(message, hint="./invokew up --source packages needs no registry")


@dataclass(frozen=True)
class RayImage:
    """The public Ray image with debugpy added: the public one is pulled, then ours is built on it."""

    base: PulledImage
    build: ImageBuild
    name: str = "ray-image"
    title: str = f"image with Ray {RAY_VERSION} and debugpy {DEBUGPY_VERSION}"
    needs: tuple[str, ...] = ("engine", "disk")
    patience: float = 0.0

    def check(self) -> Status:
        return self.build.check()

    def apply(self, report: Report) -> None:
        """Pulls, then builds. Raises what both raise."""
        if self.base.check().condition is Condition.MISSING:
            self.base.apply(report)
        self.build.apply(report)

    def undo(self, report: Report) -> None:
        """Does nothing: images are a cache, they stay."""


@dataclass(frozen=True)
class Upstream:
    """The source `upstream`, a `bootstrap.sources.source.Source`."""

    settings: Settings
    shell: Shell = field(default_factory=Shell)
    # It has the digests that the repository records.
    recorded: Path = RECORDED
    # The programs have to run on this, as release pages call it.
    system: str = platform.system().lower()
    architecture: str = docker_engine.normal(platform.machine())
    name: str = "upstream"

    @property
    def kind(self) -> Path:
        return self._kind.file

    @property
    def kubectl(self) -> Path:
        return self._kubectl.file

    @property
    def kubectl_ray(self) -> Path:
        return self._kubectl_ray.file

    @property
    def kuberay(self) -> Path:
        return self._manifests.folder / "config" / "default"

    @property
    def images(self) -> Images:
        return Images(
            ray=self.ray.build.reference,
            workspace=self._workspace.reference,
            operator=self.operator.reference,
            node=self.node.reference,
        )

    @property
    def steps(self) -> list[Appliable]:
        programs: list[Appliable] = [self._kind, self._kubectl, self._kubectl_ray]
        images: list[Appliable] = [self.ray, self._workspace, self.operator, self.node]
        return [*programs, self._go, self._manifests, *images]

    # --- programs ------------------------------------------------------------------------

    @property
    def _kind(self) -> Program:
        release = f"{self.settings.kind_releases.rstrip('/')}/v{KIND_VERSION}"
        url = f"{release}/kind-{self.system}-{self.architecture}"
        return self._program("kind", KIND_VERSION, "kind_releases", url, f"{url}.sha256sum")

    @property
    def _kubectl(self) -> Program:
        release = f"{self.settings.kubernetes_releases.rstrip('/')}/v{KUBERNETES_VERSION}"
        url = f"{release}/bin/{self.system}/{self.architecture}/kubectl"
        return self._program("kubectl", KUBERNETES_VERSION, "kubernetes_releases", url, f"{url}.sha256")

    @property
    def _kubectl_ray(self) -> Program:
        release = f"{self.settings.kuberay_releases.rstrip('/')}/v{KUBERAY_VERSION}"
        url = f"{release}/kubectl-ray_v{KUBERAY_VERSION}_{self.system}_{self.architecture}.tar.gz"
        # KubeRay's GoReleaser file names neither the project nor the checksum file. GoReleaser then
        # takes the repository's name, and should it be the module's or the program's: the second.
        sums = [
            f"{release}/{project}_{KUBERAY_VERSION}_checksums.txt" for project in ("kuberay", "kubectl-ray")
        ]
        return self._program(
            "kubectl-ray", KUBERAY_VERSION, "kuberay_releases", url, *sums, member="kubectl-ray"
        )

    @property
    def _go(self) -> Go:
        return Go(self.shell, self.settings.cache_folder)

    @property
    def _manifests(self) -> GoPrograms:
        """Returns the step of KubeRay's kustomization, which is in the Go module of its operator."""
        return GoPrograms(
            self.shell,
            self._go,
            self.settings.cache_folder,
            name="kuberay-manifests",
            title=f"KubeRay {KUBERAY_VERSION}'s manifests",
            module="kuberay",
            version=KUBERAY_VERSION,
            builds=(),
            along=("github.com/ray-project/kuberay/ray-operator", "config"),
        )

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

    # --- images --------------------------------------------------------------------------

    @property
    def ray(self) -> RayImage:
        """Returns the image of Ray's head and workers, made from Ray's own."""
        # https://hub.docker.com/r/rayproject/ray: a tag without a suffix is for x86-64 alone.
        suffix = "-aarch64" if self.architecture == "arm64" else ""
        title = f"public image of Ray {RAY_VERSION}"
        public = self._public("ray-base-image", title, "ray_image", f"{RAY_VERSION}{suffix}")
        build = ImageBuild(
            name="ray-image",
            title="the Ray image",
            repository="rayside/ray",
            context=ROOT / "image" / "ray",
            dockerfile="upstream.Dockerfile",
            arguments={"BASE": public.reference},
            extra=ray_image_files(),
            cache_folder=self.settings.cache_folder,
        )
        return RayImage(public, build)

    @property
    def _workspace(self) -> ImageBuild:
        extensions = image_extensions(self.settings).got()
        return workspace_image(self.ray.build.reference, self.settings.cache_folder, extensions=extensions)

    @property
    def operator(self) -> PulledImage:
        """Returns the image of KubeRay's operator, as it is published."""
        title = f"KubeRay {KUBERAY_VERSION}'s operator"
        return self._public("operator-image", title, "operator_image", f"v{KUBERAY_VERSION}")

    @property
    def node(self) -> PulledImage:
        """Returns the image of the kind cluster's node, as it is published."""
        title = f"kind's node with Kubernetes {KUBERNETES_VERSION}"
        return self._public("node-image", title, "node_image", f"v{KUBERNETES_VERSION}")

    def _public(self, name: str, title: str, setting: str, tag: str) -> PulledImage:
        """Returns the recorded image for our tag, wherever it is from, and the user's for the user's tag."""
        image = str(getattr(self.settings, setting))
        reference = _tagged(image, tag)
        record = f"{name} {tag}" if reference != image else reference
        return PulledImage(name, title, reference, setting, self._digests, "" if "@" in image else record)

    @property
    def _digests(self) -> Digests:
        return Digests(self.settings.cache_folder, self.recorded)


def published(settings: Settings) -> dict[str, Callable[[], str]]:
    """Returns a function for each release and image, by its recorded name, that asks for its digest."""
    sources: dict[str, Callable[[], str]] = {}
    for system in ("linux", "darwin"):
        for architecture in ("amd64", "arm64"):
            upstream = Upstream(settings, system=system, architecture=architecture)
            for program in (upstream._kind, upstream._kubectl, upstream._kubectl_ray):
                sources[program.folder.name] = program.published
            for image in (upstream.ray.base, upstream.operator, upstream.node):
                if image.record:
                    sources[image.record] = image.published
    return sources


def answers(settings: Settings) -> str | None:
    """Returns why registry and release pages can't be used from here; None if they can. Takes at most 3 s."""
    import requests

    urls = {registry_url(settings.ray_image), _site(settings.kind_releases)}
    failures: dict[str, str] = {}
    answered: set[str] = set()

    def ask(url: str) -> None:
        try:
            requests.head(url, timeout=_QUICK, allow_redirects=False).close()
            answered.add(url)
        except OSError as error:
            failures[url] = download.reason(error)

    deadline = time.monotonic() + _QUICK
    # They are daemons, so that a look-up of a name that hangs keeps nobody waiting.
    asking = [threading.Thread(target=ask, args=(url,), daemon=True) for url in urls]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join(max(0.0, deadline - time.monotonic()))
    for url in sorted(urls - answered):
        return f"{url} does not answer: {failures.get(url, f'not within {_QUICK:g} s')}"
    return None


def _downloads(folder: Path) -> Path:
    return folder.parent / "downloads"


def _tagged(image: str, tag: str) -> str:
    """Returns `image:tag`, or just `image` where the setting names a tag or a digest already."""
    named = ":" in image.rsplit("/", 1)[-1] or "@" in image
    return image if named else f"{image}:{tag}"


def _registry(image: str) -> str:
    """Returns the registry's host, by Docker's rule; empty for Docker Hub.

    The first part is a host where it has a dot or a port, or is localhost
    (https://pkg.go.dev/github.com/distribution/reference#ParseNormalizedNamed).
    """
    first, slash, _ = image.partition("/")
    return first if slash and ("." in first or ":" in first or first == "localhost") else ""


def registry_url(image: str) -> str:
    """Returns where that image's registry answers, as in https://registry-1.docker.io/v2/."""
    registry = _registry(image)
    # The Docker engine speaks plain HTTP to registries of its own machine.
    plain = registry.startswith(("localhost", "127."))
    return f"{'http' if plain else 'https'}://{registry}/v2/" if registry else f"{_HUB}/v2/"


def _site(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}/"
