"""Defines what a source of artifacts gives, wherever it has them from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from rayside.steps.step import Appliable

ArtifactKind = Literal["image", "program", "wheel", "extension", "manifest"]


@dataclass(frozen=True)
class Artifact:
    """A thing that is fetched, or built here, before a cluster can be made of it.

    Attributes:
        name: targets list it by this name.
        reference: it is used by this: an image's reference in the Docker engine, a wheel's requirement, or
            else a path on this machine.
        digest: it is held to this digest. It is empty where none is known yet, where a language's own lock
            file has it, and where it is built here: then the reference has the hash of its inputs.
        platform: it runs there, as in linux/amd64 or, for extensions, linux-x64; empty where any will do.
    """

    name: str
    kind: ArtifactKind
    reference: str
    digest: str = ""
    platform: str = ""

    @property
    def path(self) -> Path:
        """Returns the reference of what is a file or a folder."""
        return Path(self.reference)


# It is an artifact, and the name of the step that makes it be there.
Supply = tuple[Artifact, str]


@dataclass(frozen=True)
class Images:
    """References of the images that the cluster's pods run, as the Docker engine knows them.

    `pull_policy` is the `imagePullPolicy` of their containers. Images that are put into nodes are not pulled:
    their names are nobody's in a registry, and whoever took them there would run programs in the cluster.
    `pull_secret` is the Secret with the login of the registry that they are pulled from; empty where pods
    name none.
    """

    ray: str
    workspace: str
    operator: str
    pull_policy: str = "Never"
    pull_secret: str = ""

    @property
    def are_pulled(self) -> bool:
        """Returns whether nodes pull them; else they are put into the nodes."""
        return self.pull_policy != "Never"

    @property
    def pull_secrets(self) -> list[dict[str, str]]:
        """Returns the `imagePullSecrets` of their pods."""
        return [{"name": self.pull_secret}] if self.pull_secret else []


@dataclass(frozen=True)
class Archives:
    """A source's own way to get images into nodes, past the Docker engine.

    Attributes:
        ids: what the CRI calls the image of each reference: the digest of its configuration.
        command: returns the command that writes images of these references as `docker load` reads them.
    """

    ids: Mapping[str, str]
    command: Callable[[Sequence[str]], list[str | Path]]


@dataclass(frozen=True)
class Source:
    """Artifacts, each with the name of the step that makes it be there, and all those steps in order.

    A source resolves the names that a target lists. It may fetch what they mean or build it: a target sees
    no difference.

    Attributes:
        name: `--source` and `status --json` have this name.
        steps: the steps named there, and what those need besides `disk`, `engine` and `state-folder`.
        archives: how nodes get images that the engine does not need to have; None where it has to.
        wheels: the folder with all packages for Python; None where they are the index's.
        registry: where nodes can pull the images of it from, HOST/PATH; empty where nobody has put them.
    """

    name: str
    supplies: tuple[Supply, ...]
    steps: tuple[Appliable, ...]
    archives: Archives | None = None
    wheels: Path | None = None
    registry: str = ""

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        """Returns all that the source gives for this machine."""
        return tuple(artifact for artifact, _ in self.supplies)

    def resolve(self, name: str) -> Artifact:
        """Returns the artifact that a target lists as `name`."""
        return self._by_name[name][0]

    def gives(self, name: str) -> bool:
        return name in self._by_name

    def step_of(self, name: str) -> str:
        """Returns the name of the step that makes the artifact `name` be there."""
        return self._by_name[name][1]

    def steps_for(self, *names: str) -> list[Appliable]:
        """Returns the steps that make these artifacts be there, with all that those need, in order."""
        steps = {step.name: step for step in self.steps}
        needed: set[str] = set()
        waiting = [self.step_of(name) for name in names]
        while waiting:
            step = steps.get(waiting.pop())
            if step and step.name not in needed:
                needed.add(step.name)
                waiting.extend(step.needs)
        return [step for step in self.steps if step.name in needed]

    @cached_property
    def images(self) -> Images:
        """Returns the references of the artifacts `ray`, `workspace` and `operator`."""
        return Images(*(self.resolve(name).reference for name in ("ray", "workspace", "operator")))

    @cached_property
    def _by_name(self) -> dict[str, Supply]:
        return {artifact.name: (artifact, step) for artifact, step in self.supplies}


def supply(
    step: Appliable,
    kind: ArtifactKind,
    reference: str | Path,
    *,
    name: str = "",
    digest: str | None = None,
    platform: str = "",
) -> Supply:
    """Returns the artifact that `step` makes be there; it has the step's name unless `name` is another."""
    return Artifact(name or step.name, kind, str(reference), digest or "", platform), step.name
