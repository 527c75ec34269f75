"""Pulls a public image into the Docker engine, and says what a registry's refusal means."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bootstrap import docker_engine
from bootstrap.errors import DownloadFailed, ImageMissing, RaysideError
from bootstrap.settings import environment_name
from bootstrap.sources.digests import Digests
from bootstrap.sources.references import registry
from bootstrap.step import Report, Status, missing, ready

# In a pull the engine may be silent so many seconds: it tells nothing of the layers that it unpacks.
_UNPACKING = 600


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

    def check(self) -> Status:
        with docker_engine.connected() as client:
            image = docker_engine.image(client, self.reference)
            needed = docker_engine.missed_architecture(client, image)
        if image is None:
            return missing(f"{self.reference} is not in the Docker engine")
        if needed:
            return missing(f"{self.reference} is for {image['Architecture']}, not for {needed}")
        digests, recorded = docker_engine.digests(image), self.recorded
        # An image that was loaded from a file has no digest: whoever may load one owns the engine.
        if recorded and digests and recorded not in digests:
            return missing(f"{self.reference} is {digests[0]}, not {recorded} as recorded")
        return ready(self.reference)

    def apply(self, report: Report) -> None:
        """Pulls it. Raises ImageMissing, DownloadFailed, WrongArchitecture, EngineNotRunning."""
        recorded = self.recorded
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

    @property
    def recorded(self) -> str | None:
        """Returns the digest that it has to have; None where none is known yet."""
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
        recorded = f" as the image that is recorded, {self.recorded}" if self.recorded else ""
        message = f"{self.reference} can't be pulled{recorded}: {error}"
        login = f"docker login {registry(self.reference)}".rstrip()
        other = f"name an image that is there in {environment_name(self.setting)}"
        if "toomanyrequests" in words or "rate limit" in words:
            return DownloadFailed(message, hint=f"{login}, which raises the limit")
        # Docker Hub's words for a name that it doesn't have are that it "may require 'docker login'".
        if "does not exist" in words or "not found" in words or "manifest unknown" in words:
            return ImageMissing(message, hint=other)
        if "unauthorized" in words or "denied" in words or "no basic auth" in words:
            return ImageMissing(message, hint=login)
        return DownloadFailed(message, hint="./invokew up --source packages needs no registry")
