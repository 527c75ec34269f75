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
    """One instance, resolved from the settings and its record.

    Attributes:
        instance: the cluster, with its target, source and ports.
        reason: why this target was chosen, as text.
        asks: whether to request the workspace's extensions from a gallery.
        prepares: whether it is for a future cluster.
        architecture: of the future cluster's machine; default: this machine's.
    """

    settings: Settings
    shell: Shell
    instance: Instance
    reason: str
    asks: bool = False
    prepares: bool = False
    architecture: str = ""


class Access(access.Access):
    """Access to a target's Ray cluster and workspace, once its steps are ready."""

    # The steps after which jobs can be submitted.
    needs: ClassVar[tuple[str, ...]] = ("ray",)

    @abstractmethod
    def urls(self) -> dict[str, str | None]:
        """Returns the URLs of `workspace`, `dashboard` and `relay`; None for a missing one."""

    @property
    def asks_for_token(self) -> bool:
        """Returns whether Ray requires the token in the instance's file; the relay always does."""
        return True

    def workspace_password(self) -> str | None:
        """Returns the workspace's password; None if there is none."""
        return None

    @abstractmethod
    def open_folder(self) -> str:
        """Returns the newest job's working_dir, as the workspace sees it. Raises as `require`."""


@dataclass(frozen=True)
class Target(Plan, ABC):
    """The plan of one instance on one kind of infrastructure, with its steps.

    `brings_example`: `up` submits the example, but not to an existing Ray cluster.
    """

    brings_example: bool = False

    def __post_init__(self) -> None:
        """Refuses a cluster whose folder may belong to another user. Raises UnsafeFolder."""
        _ = self.instance.folder

    @property
    @abstractmethod
    def access(self) -> Access:
        """Returns the access to its Ray cluster."""

    @property
    def kubernetes(self) -> ForwardedAccess | None:
        """Returns the access for operations on Kubernetes; None on other targets."""
        return None

    @property
    def wheels(self) -> Path | None:
        """Returns the folder of all Python packages that it needs; None if they come from the index."""
        return None

    @abstractmethod
    def steps(self) -> list[Step]:
        """Returns the steps that make the cluster, in the order in which they are shown."""

    @abstractmethod
    def cacheable(self, *, engine: bool) -> list[Step]:
        """Returns the steps that can be prepared without starting anything.

        `engine`: whether a Docker engine responds; steps that need one are included in any case.
        """

    @abstractmethod
    def machine(self) -> list[Step]:
        """Returns the steps of this machine that `doctor` checks, and repairs with `--fix`."""

    @abstractmethod
    def present(self) -> bool:
        """Returns whether a part of the cluster runs: then it holds ports and memory."""

    @property
    def ports(self) -> dict[str, int]:
        """Returns the ports that have to be free for the cluster, by setting."""
        return {}

    # --- common parts of targets ---------------------------------------------------------

    def file_for_editors(self, *, shared_files: bool) -> ClusterFile:
        """Returns the step that writes the cluster file, from which editors get its addresses.

        The file has no settings that define the cluster: an `up` that refuses to change the cluster must not
        change its description.
        """
        # Without ports, which are in the record: commands for another cluster would use them, too.
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
        """Returns the step that may refuse a bundle, if the source is one."""
        return ("bundle",) if self.instance.source in BUNDLED else ()

    def origin_with(self, extensions: Callable[[], Extensions], *, nodes_pull: bool) -> Source:
        """Returns the source of images and tools; `extensions` returns the workspace image's extensions.

        A bundle contains its own, and no gallery is asked. `nodes_pull`: nodes pull images from a mirror.
        """
        # Only the needed source is imported.
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
        """Returns the step that provides the workspace's extensions.

        `platform`: VS Code's name, as in linux-x64; default: the workspace image's.
        """
        record = None if self.prepares else self.instance.folder / "extensions.json"
        which = variant(self.settings, ask=self.asks, record=record, platform=platform)
        return Extensions(self.settings, which, record)


def with_example(target: Target) -> list[Step]:
    """Returns the steps that make the cluster, with the example paused on it."""
    way = target.access
    return [*target.steps(), ExampleJob(way.dashboard, way.submit, needs=way.needs)]
