"""Target `local`: Ray as processes of this machine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from bootstrap.steps.local_ray import Leftovers, RayHead
from bootstrap.steps.machine_checks import Python, System
from bootstrap.steps.secret_file import SecretFile
from bootstrap.targets.on_this_machine import AccessFromHere, OnThisMachine
from rayside.errors import NotRunning
from rayside.steps.state_folder import StateFolder
from rayside.steps.step import Step


@dataclass(frozen=True)
class Local(OnThisMachine):
    """A Ray head, the relay and the workspace, each a process of this machine."""

    brings_example: bool = True

    def __post_init__(self) -> None:
        """Also refuses a Ray folder that may belong to another user. Raises UnsafeFolder."""
        super().__post_init__()
        _ = self.instance.ray_folder

    def steps(self) -> list[Step]:
        return [
            *self.room,
            self.environment,
            StateFolder(self.instance, (self.instance.ray_folder,)),
            SecretFile(self.instance.token_file, 32, "ray-token", "Ray's authentication token"),
            self.head,
            self.relay,
            self.cluster_file,
            *self.workspace_steps,
        ]

    def machine(self) -> list[Step]:
        # Ray's disk may fill up while it runs.
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
        return self.head.present() or super().present()

    @cached_property
    def access(self) -> LocalAccess:
        return LocalAccess(self)

    @cached_property
    def head(self) -> RayHead:
        return RayHead(self.shell, self.settings, self.instance, self.environment.programs)


@dataclass(frozen=True)
class LocalAccess(AccessFromHere):
    target: Local
    cluster: str = "local"

    def log(self) -> str:
        if not self.target.head.log.exists():
            raise NotRunning("there is no log: Ray was not started", hint="./invokew up starts it")
        return self.target.head.log.read_text(errors="replace")
