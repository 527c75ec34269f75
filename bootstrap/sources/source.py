"""Sources and their artifacts, the same for every origin."""

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
    """A file or image that is fetched, or built here, for a cluster.

    Attributes:
        name: its name in targets' lists.
        reference: an image's reference in the Docker engine, a wheel's requirement, or else a path on this
            machine.
        digest: the digest that it must have. Empty if none is known yet, if a language's own lock file has
            it, or if it is built here: then the reference has the hash of its inputs.
        platform: as in linux/amd64 or, for extensions, linux-x64; empty for any.
    """

    name: str
    kind: ArtifactKind
    reference: str
    digest: str = ""
    platform: str = ""

    @property
    def path(self) -> Path:
        """Returns the path of a file or a folder."""
        return Path(self.reference)


# An artifact, and the name of the step that provides it.
Supply = tuple[Artifact, str]


@dataclass(frozen=True)
class Images:
    """References of the images of the cluster's pods.

    `pull_policy` is the `imagePullPolicy` of their containers. Images that are loaded into nodes are not
    pulled: nobody owns their names in a registry, and whoever took them would run programs in the cluster.
    `pull_secret` is the Secret with the login to their registry; empty if pods name none.
    """

    ray: str
    workspace: str
    operator: str
    pull_policy: str = "Never"
    pull_secret: str = ""

    @property
    def are_pulled(self) -> bool:
        """Returns whether nodes pull them; else they are loaded into the nodes."""
        return self.pull_policy != "Never"

    @property
    def pull_secrets(self) -> list[dict[str, str]]:
        """Returns the `imagePullSecrets` of their pods."""
        return [{"name": self.pull_secret}] if self.pull_secret else []


@dataclass(frozen=True)
class Archives:
    """A source's own archives of images for nodes, without the Docker engine.

    Attributes:
        ids: image id in the CRI, by reference: the digest of its configuration.
        command: returns the command that writes images of these references in the format of `docker load`.
    """

    ids: Mapping[str, str]
    command: Callable[[Sequence[str]], list[str | Path]]


@dataclass(frozen=True)
class Source:
    """Artifacts, each with the name of the step that provides it, and all those steps in order.

    A source resolves the names in a target's list. Whether it fetches or builds an artifact makes no
    difference to the target.

    Attributes:
        name: its name in `--source` and `status --json`.
        steps: the artifacts' steps, and steps that these need besides `disk`, `engine` and `state-folder`.
        archives: images for nodes that need not be in the engine; None if they have to be.
        wheels: the folder of all Python packages; None if they come from the index.
        registry: from which nodes can pull its images, HOST/PATH; empty without one.
    """

    name: str
    supplies: tuple[Supply, ...]
    steps: tuple[Appliable, ...]
    archives: Archives | None = None
    wheels: Path | None = None
    registry: str = ""

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        """Returns all artifacts of the source."""
        return tuple(artifact for artifact, _ in self.supplies)

    def resolve(self, name: str) -> Artifact:
        """Returns the artifact of that name."""
        return self._by_name[name][0]

    def gives(self, name: str) -> bool:
        return name in self._by_name

    def step_of(self, name: str) -> str:
        """Returns the name of the step that provides the artifact `name`."""
        return self._by_name[name][1]

    def steps_for(self, *names: str) -> list[Appliable]:
        """Returns the steps that provide these artifacts, with all needed steps, in order."""
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
    """Returns the artifact that `step` provides; default of `name`: the step's name."""
    return Artifact(name or step.name, kind, str(reference), digest or "", platform), step.name
