"""Identity of a cluster, from which its names and folders derive."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bootstrap.errors import UnknownTarget
from bootstrap.settings import POD, TARGETS, Settings
from rayside.connection import instance as known
from rayside.connection.instance import USUAL_DASHBOARD, Ports
from rayside.default_folders import short_folder
from rayside.errors import InvalidSetting
from rayside.own_folder import require_own
from rayside.plain import line
from rayside.users import own_name

# Label of all objects that Rayside creates in Kubernetes.
MANAGED_BY = {"app.kubernetes.io/managed-by": "rayside"}
# Additional label of the objects of an attendee's place; the value names the cluster beside which it is.
WORKSHOP = "rayside.dev/workshop"
# A Unix socket's path may be 107 bytes long (104 on macOS), and Ray's longest below its temporary
# folder is /session_<date>_<time>_<microseconds>_<pid>/sockets/plasma_store.
_LONGEST_SOCKET = len("/ray/session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store.1")
_LONGEST_RAY_FOLDER = 103 - _LONGEST_SOCKET


@dataclass(frozen=True)
class Instance(known.Instance):
    """A cluster, with further names and folders for the bootstrapper."""

    @property
    def ray_folder(self) -> Path:
        """Returns the folder of a local Ray cluster's files and sockets: `folder`, or a shorter path.

        Its owner is checked: other users may create folders beside it. Raises UnsafeFolder, InvalidSetting.
        """
        if _fits(self.location):
            return self.folder
        key = hashlib.sha256(os.fsencode(self.location)).hexdigest()[:8]
        short = short_folder() / f"rayside-{os.getuid()}-{key}"
        if not _fits(short):
            raise InvalidSetting(
                f"{self.location} is too long for Ray's sockets, and there is no /tmp",
                hint=f"choose a state_folder and a name of at most {_LONGEST_RAY_FOLDER} bytes together",
            )
        return require_own(short)

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    # --- Kubernetes' names ---------------------------------------------------------------

    @property
    def workspace_secret(self) -> str:
        """Returns the name of the Secret with the workspace's password."""
        return f"{self.name}-workspace"

    @property
    def packages_secret(self) -> str:
        """Returns the name of the Secret with the configuration of pip and uv in pods."""
        return f"{self.name}-packages"

    @property
    def labels(self) -> dict[str, str]:
        """Returns the labels of the cluster's objects in Kubernetes."""
        place = {WORKSHOP: self.workshop} if self.workshop else {}
        return {**MANAGED_BY, "rayside.dev/instance": self.name, **place}


def configured(settings: Settings, target: str) -> Instance:
    """Returns the instance that the settings describe, whether or not it exists."""
    ports = Ports(
        settings.dashboard_port, settings.ray_client_port, settings.relay_port, settings.workspace_port
    )
    context = f"kind-{settings.name}" if target == "kind" else ""
    location = settings.state_folder / settings.name
    source = settings.source.replace("auto", "") if target == "kind" else "packages"
    address, ssh = (settings.address, settings.ssh) if target == "cluster" else ("", "")
    if target == "cluster" and not address:
        address = USUAL_DASHBOARD
    user = settings.user or own_name() if target == "cluster" else ""
    identity = settings.name, target, settings.namespace or "default", context, location, ports
    return Instance(*identity, source, address, ssh, user=user)


def read(location: Path) -> Instance | None:
    """Returns the instance recorded in this folder; None if there is none.

    Raises as `known.read`, and UnknownTarget if this version does not know its target.
    """
    instance = known.read(location, Instance)
    if instance is not None and not _is_known(instance):
        raise UnknownTarget(
            f"the cluster {instance.name} is on the target {line(instance.target)}, which this version of "
            "Rayside does not know",
            hint="use the version that made it",
        )
    return instance


def all_recorded(state_folder: Path) -> Iterator[Instance]:
    """Yields each instance that `read` would return, by name. Raises UnsafeFolder."""
    return filter(_is_known, known.all_recorded(state_folder, Instance))


def in_workspace(state_folder: Path) -> bool:
    """Returns whether this is the workspace in a cluster's pod, which another machine made.

    Raises UnsafeFolder.
    """
    return any(instance.target == POD for instance in all_recorded(state_folder))


def _is_known(instance: Instance) -> bool:
    return instance.target in (*TARGETS, POD)


def _fits(folder: Path) -> bool:
    return len(os.fsencode(folder)) <= _LONGEST_RAY_FOLDER
