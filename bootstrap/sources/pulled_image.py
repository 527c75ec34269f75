"""Public images pulled into the Docker engine; registries' errors are explained."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bootstrap import cache, docker_engine
from bootstrap.errors import DownloadFailed, ImageMissing
from bootstrap.registry.address import Address, engines_ca_file
from bootstrap.sources.digests import Digests
from bootstrap.sources.references import located, registry, without_tag
from bootstrap.sources.registry_client import RegistryClient
from rayside.errors import MissingProgram, RaysideError
from rayside.plain import line
from rayside.settings import environment_name
from rayside.steps.step import Report, Status, missing, ready

if TYPE_CHECKING:
    from docker import DockerClient

# Repository prefix of images for another architecture than the engine's, before the architecture's name.
FOREIGN = "rayside/pulled-"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
# Read timeout of a pull in seconds: the engine reports nothing while it unpacks layers.
_UNPACKING = 600


@dataclass(frozen=True)
class PulledImage:
    """A public image in the engine, named by `setting`.

    `record`: its digest's name; empty if the reference itself is a digest. `architecture`: another than the
    engine's, for which the image gets its own name, and `client` finds the digest; empty for the engine's.
    """

    name: str
    title: str
    public: str
    setting: str
    digests: Digests
    record: str = ""
    architecture: str = ""
    client: RegistryClient | None = None

    @property
    def needs(self) -> tuple[str, ...]:
        return ("engine", "disk", *([self.client.name] if self.client else []))

    @property
    def reference(self) -> str:
        """Returns its reference in the engine."""
        if not self.architecture:
            return self.public
        # The public name is for the engine's own architecture.
        return f"{FOREIGN}{self.architecture}:{cache.key(self.public)}"

    def check(self) -> Status:
        with docker_engine.connected() as client:
            image = docker_engine.image(client, self.reference)
            needed = docker_engine.missed_architecture(client, image, self.architecture)
        if image is None:
            return missing(f"{self.public} is not in the Docker engine")
        if needed:
            return missing(f"{self.reference} is for {image['Architecture']}, not for {needed}")
        digests, recorded = docker_engine.digests(image), self.recorded
        if self.architecture and recorded:
            if self._with_digest(recorded) not in image["RepoTags"]:
                return missing(f"{self.reference} is not {recorded} as recorded")
        # An image that was loaded from a file has no digest, and is trusted: its loader controls the engine.
        elif recorded and digests and recorded not in digests:
            return missing(f"{self.reference} is {digests[0]}, not {recorded} as recorded")
        return ready(self.reference)

    def apply(self, report: Report) -> None:
        """Pulls it. Raises ImageMissing, DownloadFailed, WrongArchitecture, EngineNotRunning."""
        if self.architecture:
            self._apply_foreign(report)
            return
        recorded = self.recorded
        # Pulled by digest, which the engine verifies; the tag may point to another image by now.
        reference = f"{without_tag(self.public)}@{recorded}" if recorded else self.public
        with docker_engine.connected(_UNPACKING) as client:
            self._pull(client, reference, report)
            if recorded:
                client.api.tag(reference, *self.public.rsplit(":", 1), force=True)
            elif self.record:
                got = docker_engine.digests(docker_engine.image(client, reference) or {})
                for digest in got[:1]:
                    self.digests.keep(self.record, digest, report)

    def _apply_foreign(self, report: Report) -> None:
        """Pulls the image of the other architecture by its own digest.

        The engine gives a digest to one image only: pulled by the index's digest, it would block the image
        for the engine's own architecture ("Cannot overwrite digest", 20.10), and take over its public tag.
        """
        pinned = self.public.partition("@")[2]
        digest = self.recorded or pinned or self.published()
        reference = f"{without_tag(self.public)}@{self._own_digest(digest)}"
        with docker_engine.connected(_UNPACKING) as client:
            was_there = docker_engine.image(client, reference) is not None
            try:
                self._pull(client, reference, report)
                # The reference that `check` looks for comes last: until then the next command starts over.
                if self.record:
                    self.digests.keep(self.record, digest, report)
                for name in (self._with_digest(digest), self.reference):
                    client.api.tag(reference, *name.rsplit(":", 1), force=True)
            finally:
                # Else the image would stay when its names are removed, or when it is refused.
                if not was_there and docker_engine.image(client, reference) is not None:
                    client.api.remove_image(reference, noprune=True)

    def _own_digest(self, digest: str) -> str:
        """Returns the digest of this architecture's manifest, given the digest of an index for several."""
        if not _DIGEST.fullmatch(digest):
            raise self.explained(f"it is held to {line(digest, 100)!r}, which is no SHA-256")
        assert self.client
        host, repository = located(self.public)
        address, platform = Address(host), f"linux/{self.architecture}"
        try:
            registry = self.client.of(address, engines_ca_file(address))
            if own := registry.digest_for(repository, digest, platform):
                return own
        except MissingProgram:
            raise
        except RaysideError as error:
            raise self.explained(error.message) from None
        raise ImageMissing(
            f"{self.public} has no image for {platform}",
            hint=self._other,
        )

    def _pull(self, client: DockerClient, reference: str, report: Report) -> None:
        platform = f"linux/{self.architecture}" if self.architecture else None
        report(f"pulling {reference}")
        events = docker_engine.events(
            lambda: client.api.pull(reference, platform=platform, stream=True, decode=True)
        )
        self._follow(events, report)
        docker_engine.require_architecture(client, reference, self.architecture)

    def published(self) -> str:
        """Returns the tag's digest in the registry. Raises as `apply`."""
        import docker.errors

        with docker_engine.connected() as client:
            try:
                return str(client.api.inspect_distribution(self.public)["Descriptor"]["digest"])
            except docker.errors.APIError as error:
                raise self.explained(error.explanation or str(error)) from None

    @property
    def recorded(self) -> str | None:
        """Returns the digest that it must have; None if none is known yet."""
        return self.digests.of(self.record) if self.record else None

    def _with_digest(self, digest: str) -> str:
        """Returns a second name, with the public digest: the engine knows only the architecture's digest."""
        return f"{self.reference}-{digest.removeprefix('sha256:')[:12]}"

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

    @property
    def _other(self) -> str:
        return f"name an image that is there in {environment_name(self.setting)}"

    def explained(self, error: str) -> RaysideError:
        """Returns the error for a registry's message, with the one thing to do."""
        words = error.lower()
        recorded = f" as the image that is recorded, {self.recorded}" if self.recorded else ""
        message = f"{self.public} can't be pulled{recorded}: {error}"
        login = f"docker login {registry(self.public)}".rstrip()
        if "toomanyrequests" in words or "rate limit" in words or "code 429" in words:
            return DownloadFailed(message, hint=f"{login}, which raises the limit")
        if "credential not found" in words:  # oras's
            return ImageMissing(message, hint=login)
        # For a missing name Docker Hub's message is that it "may require 'docker login'".
        if "does not exist" in words or "not found" in words or "manifest unknown" in words:
            return ImageMissing(message, hint=self._other)
        if any(each in words for each in ("unauthorized", "denied", "no basic auth", "code 403")):
            return ImageMissing(message, hint=login)
        return DownloadFailed(message, hint="./invokew up --source packages needs no registry")
