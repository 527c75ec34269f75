"""Base class of targets whose relay and workspace are processes of this machine."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property

from bootstrap.codespaces import larger_machine
from bootstrap.instance import Instance
from bootstrap.sources.extensions import Extensions, this_platform
from bootstrap.steps import workspace
from bootstrap.steps.machine_checks import Disk, Memory, Python
from bootstrap.steps.secret_file import SecretFile
from bootstrap.steps.workspace import LocalWorkspace, WorkspaceFiles
from bootstrap.targets.target import Access, Target
from rayside.ray.records import jobs_for
from rayside.ray.state import Dashboard
from rayside.steps.cluster_file import ClusterFile
from rayside.steps.ray_beside import RayBeside
from rayside.steps.relay_process import LocalRelay
from rayside.steps.step import PortStep, Step


@dataclass(frozen=True)
class OnThisMachine(Target):
    """Runs the relay and the workspace for the Ray cluster of `head`, which the subclass provides.

    `shared_files`: whether this machine's editors see the workers' own files.
    """

    shared_files: bool = True

    @property
    def opens(self) -> tuple[str, ...]:
        """Returns the names of the cluster's ports on this machine."""
        return ("dashboard", "ray_client", "relay", "workspace")

    @property
    @abstractmethod
    def head(self) -> RayBeside:
        """Returns the Ray cluster of relay and workspace."""

    def cacheable(self, *, engine: bool) -> list[Step]:
        files: list[Step] = [self.extensions, self.workspace_files] if self.has_workspace else []
        return [Python(), self.memory, self.disk, self.environment, *files]

    def present(self) -> bool:
        return self.relay.present() or self.workspace.present()

    # --- steps that other steps are built from -------------------------------------------

    @cached_property
    def cluster_file(self) -> ClusterFile:
        return self.file_for_editors(shared_files=self.shared_files)

    @property
    def relay(self) -> PortStep:
        """Returns the step after which editors can connect to the relay."""
        masked = self.masking
        return LocalRelay(self.shell, self.instance, self.head, masked, self.shared_files)

    @cached_property
    def extensions(self) -> Extensions:
        return self.extensions_for(this_platform())

    @cached_property
    def workspace_files(self) -> WorkspaceFiles:
        return WorkspaceFiles(self.shell, self.settings.cache_folder, self.extensions)

    @cached_property
    def password(self) -> SecretFile:
        file = self.instance.folder / "workspace-password"
        return SecretFile(file, 18, "workspace-password", "password of the workspace")

    @property
    def has_workspace(self) -> bool:
        return self.settings.workspace

    @property
    def workspace(self) -> PortStep:
        return self.workspace_here

    @cached_property
    def workspace_here(self) -> LocalWorkspace:
        return LocalWorkspace(
            *(self.shell, self.instance, self.head, self.workspace_files),
            *(self.password, self.cluster_file),
        )

    @property
    def workspace_steps(self) -> list[Step]:
        if not self.has_workspace:
            return []
        return [self.extensions, self.workspace_files, self.password, self.workspace]

    @property
    def room(self) -> list[Step]:
        return [Python(), self.memory, self.free_ports, self.disk]

    @cached_property
    def memory(self) -> Memory:
        return Memory(self.settings, "min_memory_gib", self.present, too_small=larger_machine())

    @cached_property
    def disk(self) -> Disk:
        return Disk(self.settings, "min_disk_gib", self.present, too_small=larger_machine())

    @property
    def ports(self) -> dict[str, int]:
        names = [name for name in self.opens if name != "workspace" or self.has_workspace]
        return {f"{name}_port": getattr(self.instance.ports, name) for name in names}


@dataclass(frozen=True)
class AccessFromHere(Access):
    """Access to such a target's Ray cluster, at its dashboard's URL."""

    target: OnThisMachine

    @property
    def identity(self) -> Instance:
        return self.target.instance

    @property
    def asks_for_token(self) -> bool:
        return self.target.head.asks_for_token

    def urls(self) -> dict[str, str | None]:
        url = self.target.workspace.url if self.target.has_workspace else None
        return {"workspace": url, "dashboard": self.target.head.url, "relay": self.target.relay.url}

    def dashboard(self) -> Dashboard:
        return self.target.head.dashboard()

    def require(self) -> Dashboard:
        return self.target.head.require()

    def workspace_password(self) -> str | None:
        return self.target.password.text()

    def open_folder(self) -> str:
        return workspace.local_folder(jobs_for(self.target.instance.user, self.require().jobs()))
