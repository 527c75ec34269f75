"""Plan of a command, and base class of the targets: steps, access to Ray, and the Kubernetes part."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from bootstrap.instance import Instance
from bootstrap.settings import BUNDLED, ROOT, Settings
from bootstrap.sources.extensions import Extensions, variant
from bootstrap.sources.source import Source
from bootstrap.steps.example_job import ExampleJob
from bootstrap.steps.machine_checks import Ports
from bootstrap.steps.ray_environment import RayEnvironment
from rayside.connection import access
from rayside.relay.config import Masking
from rayside.settings import as_environment
from rayside.steps.cluster_file import ClusterFile
from rayside.steps.step import Step
from rayside.system.shell import Shell

if TYPE_CHECKING:
    from bootstrap.targets.forwarded import ForwardedAccess


@dataclass(frozen=True)
class Plan:
    """One instance, where the settings and its record have it.

    Attributes:
        instance: the cluster that is meant, with its target, source and ports.
        reason: why it is this target, for people.
        asks: whether a gallery may be asked for the workspace's extensions.
        prepares: whether that is for a cluster to come.
        architecture: of the machine that the cluster is to come to; default: this one's.
    """

    settings: Settings
    shell: Shell
    instance: Instance
    reason: str
    asks: bool = False
    prepares: bool = False
    architecture: str = ""


class Access(access.Access):
    """Access to the Ray of a target, and to its workspace, once its steps are ready."""

    # The steps after which jobs can be submitted.
    needs: ClassVar[tuple[str, ...]] = ("ray",)

    @abstractmethod
    def urls(self) -> dict[str, str | None]:
        """Returns the addresses of `workspace`, `dashboard` and `relay`; None for what it does without."""

    @property
    def asks_for_token(self) -> bool:
        """Returns whether Ray asks for the token in the instance's file; the relay always does."""
        return True

    def workspace_password(self) -> str | None:
        """Returns the workspace's password; None where there is none."""
        return None

    @abstractmethod
    def open_folder(self) -> str:
        """Returns the newest job's working_dir, as the workspace sees it. Raises as `require`."""


@dataclass(frozen=True)
class Target(Plan, ABC):
    """The plan of one instance, on one kind of place where Ray runs: lists its steps.

    `brings_example`: `up` submits the example, but not to an existing Ray cluster.
    """

    brings_example: bool = False

    def __post_init__(self) -> None:
        """Refuses a cluster whose folder may be another user's. Raises UnsafeFolder."""
        _ = self.instance.folder

    @property
    @abstractmethod
    def access(self) -> Access:
        """Returns the access to its Ray."""

    @property
    def kubernetes(self) -> ForwardedAccess | None:
        """Returns what only a target on Kubernetes can do; None where it has none."""
        return None

    @property
    def wheels(self) -> Path | None:
        """Returns the folder with the packages for Python that it needs; None where they are the index's."""
        return None

    @abstractmethod
    def steps(self) -> list[Step]:
        """Returns the steps that make the cluster, in the order in which people read them."""

    @abstractmethod
    def cacheable(self, *, engine: bool) -> list[Step]:
        """Returns the steps that can be made ready ahead without starting anything.

        `engine` says whether a Docker engine answers; what needs one is among the steps all the same.
        """

    @abstractmethod
    def machine(self) -> list[Step]:
        """Returns the steps of this machine that `doctor` lists, and with `--fix` makes ready."""

    @abstractmethod
    def present(self) -> bool:
        """Returns whether anything of the cluster is there: then it holds its ports, and its memory."""

    @property
    def ports(self) -> dict[str, int]:
        """Returns the ports that have to be free for the cluster, by their settings."""
        return {}

    # --- what targets have in common -----------------------------------------------------

    def file_for_editors(self, *, shared_files: bool) -> ClusterFile:
        """Returns the step that writes the file by which editors find the cluster.

        Of the settings, those that make the cluster are not in it: an `up` that refuses to change the
        cluster must not change what is said of it.
        """
        # The record has the ports. Named here, they would be taken for those of another cluster, too.
        own = Settings(
            name=self.instance.name,
            target=self.instance.target,
            namespace=self.instance.namespace,
            state_folder=self.settings.state_folder,
            cache_folder=self.settings.cache_folder,
        )
        verbs = (str(ROOT / "invokew"),)
        submit = (*verbs, "submit")
        return ClusterFile(self.instance, shared_files, verbs, submit, as_environment(own))

    @cached_property
    def environment(self) -> RayEnvironment:
        """Returns this machine's Ray environment, whose `ray` submits jobs."""
        return RayEnvironment(self.shell, self.settings.cache_folder, wheels=self.wheels)

    @cached_property
    def free_ports(self) -> Ports:
        return Ports(self.ports, self.present)

    @property
    def masking(self) -> Masking:
        return Masking.of(self.settings)

    @property
    def bundle_steps(self) -> tuple[str, ...]:
        """Returns the step that may refuse a bundle, where everything comes out of one."""
        return ("bundle",) if self.instance.source in BUNDLED else ()

    def origin_with(self, extensions: Callable[[], Extensions], *, nodes_pull: bool) -> Source:
        """Returns the source of images and tools; `extensions` gives those of the workspace that is built.

        What was bundled has its own, and no gallery is asked. `nodes_pull`: nodes have images from a mirror.
        """
        # Only the source that it has is imported.
        if self.instance.source in BUNDLED:
            from bootstrap.sources.bundle_origin import RECORD
            from bootstrap.sources.bundled import bundled

            record = self.instance.folder / RECORD
            return bundled(
                *(replace(self.settings, source=self.instance.source), record, self.shell),
                is_for_later=self.prepares,
                nodes_pull=nodes_pull,
            )
        from bootstrap.sources.chosen import chosen

        return chosen(self.instance.source, self.settings, extensions(), self.shell, self.architecture)

    def extensions_for(self, platform: str = "") -> Extensions:
        """Returns the step that brings the workspace's extensions.

        `platform`: VS Code's name for it, as in linux-x64; default: that of the workspace's image.
        """
        record = None if self.prepares else self.instance.folder / "extensions.json"
        which = variant(self.settings, ask=self.asks, record=record, platform=platform)
        return Extensions(self.settings, which, record)


def with_example(target: Target) -> list[Step]:
    """Returns the steps that make the cluster, with the example paused on it."""
    way = target.access
    return [*target.steps(), ExampleJob(way.dashboard, way.submit, needs=way.needs)]
