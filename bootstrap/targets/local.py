"""Target `local`: Ray as processes of this machine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from bootstrap.codespaces import larger_machine
from bootstrap.errors import NotRunning
from bootstrap.instance import Instance
from bootstrap.ray import jobs
from bootstrap.ray.state import Dashboard
from bootstrap.settings import Settings
from bootstrap.shell import Shell
from bootstrap.sources.extensions import Extensions, this_platform, variant
from bootstrap.step import Step
from bootstrap.steps import workspace
from bootstrap.steps.cluster_file import ClusterFile
from bootstrap.steps.leftovers import Leftovers
from bootstrap.steps.local_ray import RayHead
from bootstrap.steps.machine import Disk, Memory, Ports, Python, System
from bootstrap.steps.ray_environment import RayEnvironment
from bootstrap.steps.relay import LocalRelay
from bootstrap.steps.secret_file import SecretFile
from bootstrap.steps.state_folder import StateFolder
from bootstrap.steps.workspace import LocalWorkspace, WorkspaceFiles


@dataclass(frozen=True)
class Local:
    """A Ray head, the relay and the workspace, each a process of this machine."""

    settings: Settings
    shell: Shell
    instance: Instance
    reason: str
    # Whether a gallery may be asked for extensions, and whether that is for a cluster to come.
    asks: bool = False
    prepares: bool = False
    kubernetes: None = None

    def __post_init__(self) -> None:
        """Refuses a cluster whose folders may be another user's. Raises UnsafeFolder."""
        _ = self.instance.folder, self.instance.ray_folder

    def steps(self) -> list[Step]:
        return [
            *self._room,
            self.environment,
            StateFolder(self.instance, (self.instance.ray_folder,)),
            SecretFile(self.instance.token_file, 32, "ray-token", "Ray's authentication token"),
            self.head,
            self.relay,
            self.cluster_file,
            *(self._workspace_steps if self.settings.workspace else ()),
        ]

    def cacheable(self, *, engine: bool) -> list[Step]:
        files: list[Step] = [self.extensions, self.workspace_files] if self.settings.workspace else []
        return [Python(), self.memory, self.disk, self.environment, *files]

    def machine(self) -> list[Step]:
        # Ray's disk may run full while it is up.
        return [
            System(),
            Python(),
            self.memory,
            replace(self.disk, present=lambda: False),
            *self.free_ports.each(),
            Leftovers(self.head),
            self.environment,
        ]

    def present(self) -> bool:
        return self.head.present() or self.relay.present() or self.workspace.present()

    @cached_property
    def access(self) -> LocalAccess:
        return LocalAccess(self)

    # --- the steps that lead to others ---------------------------------------------------

    @cached_property
    def environment(self) -> RayEnvironment:
        return RayEnvironment(self.shell, self.settings.cache_folder)

    @cached_property
    def head(self) -> RayHead:
        return RayHead(self.shell, self.settings, self.instance, self.environment.programs)

    @cached_property
    def relay(self) -> LocalRelay:
        return LocalRelay(self.shell, self.instance, self.head)

    @cached_property
    def cluster_file(self) -> ClusterFile:
        return ClusterFile(self.settings, self.instance, shared_files=True)

    @cached_property
    def extensions(self) -> Extensions:
        record = None if self.prepares else self.instance.folder / "extensions.json"
        chosen = variant(self.settings, ask=self.asks, record=record, platform=this_platform())
        return Extensions(self.settings, chosen, record)

    @cached_property
    def workspace_files(self) -> WorkspaceFiles:
        return WorkspaceFiles(self.shell, self.settings.cache_folder, self.extensions)

    @cached_property
    def password(self) -> SecretFile:
        file = self.instance.folder / "workspace-password"
        return SecretFile(file, 18, "workspace-password", "password of the workspace")

    @cached_property
    def workspace(self) -> LocalWorkspace:
        return LocalWorkspace(
            *(self.shell, self.instance, self.head, self.workspace_files),
            *(self.password, self.cluster_file),
        )

    @property
    def _workspace_steps(self) -> list[Step]:
        return [self.extensions, self.workspace_files, self.password, self.workspace]

    @property
    def _room(self) -> list[Step]:
        return [Python(), self.memory, self.free_ports, self.disk]

    @cached_property
    def memory(self) -> Memory:
        return Memory(self.settings, "min_memory_gib", self.present, too_small=larger_machine())

    @cached_property
    def free_ports(self) -> Ports:
        return Ports(self.ports, self.present)

    @cached_property
    def disk(self) -> Disk:
        return Disk(self.settings, "min_disk_gib", self.present, too_small=larger_machine())

    @property
    def ports(self) -> dict[str, int]:
        """Returns the ports that have to be free for the cluster, by their settings."""
        ports = {f"{name}_port": port for name, port in vars(self.instance.ports).items()}
        return {
            name: port for name, port in ports.items() if name != "workspace_port" or self.settings.workspace
        }


@dataclass(frozen=True)
class LocalAccess:
    """Access to a Ray of this machine, at its own ports."""

    target: Local
    cluster: str = "local"
    needs: tuple[str, ...] = ("ray",)

    def urls(self) -> dict[str, str | None]:
        url = self.target.workspace.url if self.target.settings.workspace else None
        return {"workspace": url, "dashboard": self.target.head.url, "relay": self.target.relay.url}

    def dashboard(self) -> Dashboard:
        return self.target.head.dashboard()

    def require(self) -> Dashboard:
        return self.target.head.require()

    def submit(self, job: jobs.Submission, submission_id: str) -> None:
        head, ray = self.target.head, self.target.environment.programs / "ray"
        jobs.submit(self.target.shell, ray, head.url, head.environment(), job, submission_id)

    def log(self) -> str:
        if not self.target.head.log.exists():
            raise NotRunning("there is no log: Ray was not started", hint="./invokew up starts it")
        return self.target.head.log.read_text(errors="replace")

    def workspace_password(self) -> str | None:
        return self.target.password.text()

    def open_folder(self) -> str:
        return workspace.local_folder(self.require().jobs())
