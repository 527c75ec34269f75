"""Identity of a cluster, from which its names and places derive."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bootstrap.errors import UnknownTarget
from bootstrap.settings import DEFAULT_NAME, POD, TARGETS, Settings
from rayside.default_folders import short_folder
from rayside.errors import InvalidSetting, UnsafeFolder
from rayside.own_folder import require_own
from rayside.plain import line
from rayside.users import own_name

# All that is made in Kubernetes has this label.
MANAGED_BY = {"app.kubernetes.io/managed-by": "rayside"}
# What is of an attendee's place has this one, too, with the name of the cluster beside which it is.
WORKSHOP = "rayside.dev/workshop"
# Ray's own default, as its head's node reaches it.
_USUAL_DASHBOARD = "http://127.0.0.1:8265"
# A cluster's record, by which it is known again, lies in its folder.
_RECORD = "instance.json"
# A Unix socket's path may be 107 bytes long (104 on macOS), and Ray's longest below its temporary
# folder is /session_<date>_<time>_<microseconds>_<pid>/sockets/plasma_store.
_LONGEST_SOCKET = len("/ray/session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store.1")
_LONGEST_RAY_FOLDER = 103 - _LONGEST_SOCKET


@dataclass(frozen=True)
class Ports:
    """Ports of 127.0.0.1 on this machine; the setting `x_port` asks for the port `x`."""

    dashboard: int
    ray_client: int
    relay: int
    workspace: int


@dataclass(frozen=True)
class Instance:
    """One cluster: its lock, its files, its secrets, labels and marks derive from this and nothing else.

    Attributes:
        name: what `--name` says, unique among the clusters of one state folder.
        target: where Ray runs, a name of `settings.TARGETS` other than auto, or `settings.POD`.
        namespace: the Kubernetes namespace that Ray is in.
        context: the context of a kubeconfig that leads to its Kubernetes; empty where it has none.
        location: the folder of its files, not checked; `folder` is the way to them.
        ports: what this machine reaches it by.
        source: where its programs and images came from; empty where that is still open.
        address: the dashboard of a Ray that others made, as in http://head:8265; empty where it is ours.
        ssh: the host on which `address` is, for OpenSSH; empty where it is reached in another way.
        their_kubeconfig: the user's file with `context`, where it leads to a Kubernetes of others.
        their_cluster: the RayCluster there that others made, in `namespace`; empty where ours is made there.
        workspace_pod: the pod there that has its workspace and its relay; empty where they are elsewhere.
        user: the name of who debugs on a Ray that others use, too; empty where it is one person's.
        workshop: the name of the cluster beside which it is an attendee's place; empty for any other.
    """

    name: str
    target: str
    namespace: str
    context: str
    location: Path
    ports: Ports
    source: str = ""
    address: str = ""
    ssh: str = ""
    their_kubeconfig: str = ""
    their_cluster: str = ""
    workspace_pod: str = ""
    user: str = ""
    workshop: str = ""

    @property
    def created(self) -> bool:
        """Returns whether its RayCluster is made by us, in a Kubernetes that others look after."""
        return bool(self.their_kubeconfig and not self.their_cluster)

    @property
    def dashboard(self) -> str:
        """Returns the address of Ray's dashboard, as this machine reaches it."""
        through_here = f"http://127.0.0.1:{self.ports.dashboard}"
        return through_here if self.ssh or self.their_cluster else self.address or through_here

    @property
    def place(self) -> str:
        """Returns where a Ray of the target `cluster` is, for people."""
        if self.their_kubeconfig:
            name = self.their_cluster or self.ray_cluster
            return f"the RayCluster {name} in {self.namespace} of {self.context}"
        return f"{self.address} on {self.ssh}" if self.ssh else self.address

    @property
    def folder(self) -> Path:
        """Returns the folder of its files, the only way to them, checked each time. Raises UnsafeFolder."""
        return require_own(self.location)

    @property
    def ray_folder(self) -> Path:
        """Returns the folder of a local Ray's files and sockets: `folder`, or another if that is too long.

        It is checked, too: others may make folders beside it. Raises UnsafeFolder, InvalidSetting.
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
    def token_file(self) -> Path:
        """Returns the file of Ray's token, which the relay asks for, too."""
        return self.folder / "token"

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def cluster_file(self) -> Path:
        """Returns the file by which editors find the cluster."""
        return self.folder / "cluster.json"

    @property
    def mark(self) -> str:
        """Returns the value of the variables by which its processes are found: steps/marks.py."""
        return str(self.location)

    @property
    def verb_options(self) -> str:
        """Returns what a command has to say besides, so that it is for this cluster; empty for the first."""
        return "" if self.name == DEFAULT_NAME else f" --name {self.name}"

    def lock(self, cache_folder: Path) -> Path:
        """Returns the lock for changing the cluster; it is in the cache, as the folder comes and goes."""
        key = hashlib.sha256(os.fsencode(self.location)).hexdigest()[:12]
        return cache_folder / f"instance-{key}.lock"

    # --- Kubernetes' names ---------------------------------------------------------------

    @property
    def ray_cluster(self) -> str:
        """Returns the RayCluster's name; KubeRay's Secret with Ray's token is called so, too."""
        return self.name

    @property
    def workspace_secret(self) -> str:
        """Returns the name of the Secret with the workspace's password."""
        return f"{self.name}-workspace"

    @property
    def packages_secret(self) -> str:
        """Returns the name of the Secret with what pip and uv are told in pods."""
        return f"{self.name}-packages"

    @property
    def labels(self) -> dict[str, str]:
        """Returns the labels of all that is made for it in Kubernetes."""
        place = {WORKSHOP: self.workshop} if self.workshop else {}
        return {**MANAGED_BY, "rayside.dev/instance": self.name, **place}

    # --- its record ----------------------------------------------------------------------

    @property
    def record(self) -> Path:
        """Returns the file that `read` reads."""
        return self.folder / _RECORD

    def document(self) -> str:
        """Returns the text of its record."""
        known = {key: value for key, value in vars(self).items() if key not in ("name", "location")}
        return json.dumps({**known, "ports": dataclasses.asdict(self.ports)}, indent=2)


def configured(settings: Settings, target: str) -> Instance:
    """Returns the instance as the settings have it, whatever there is of it."""
    ports = Ports(
        settings.dashboard_port, settings.ray_client_port, settings.relay_port, settings.workspace_port
    )
    context = f"kind-{settings.name}" if target == "kind" else ""
    location = settings.state_folder / settings.name
    source = settings.source.replace("auto", "") if target == "kind" else "packages"
    address, ssh = (settings.address, settings.ssh) if target == "cluster" else ("", "")
    if target == "cluster" and not address:
        address = _USUAL_DASHBOARD
    user = settings.user or own_name() if target == "cluster" else ""
    known = settings.name, target, settings.namespace, context, location, ports
    return Instance(*known, source, address, ssh, user=user)


def read(location: Path) -> Instance | None:
    """Returns the instance that has this folder; None where there is none.

    Raises UnsafeFolder, InvalidSetting where its record can't be read, and UnknownTarget where it is on a
    target that this version does not know.
    """
    try:
        document: dict[str, Any] = json.loads((require_own(location) / _RECORD).read_text())
        ports = Ports(**{port: int(number) for port, number in document.pop("ports").items()})
        texts = {key: str(value) for key, value in document.items()}
        instance = Instance(name=location.name, location=location, ports=ports, **texts)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise InvalidSetting(
            f"{location / _RECORD} is not what Rayside wrote there",
            hint=f"./invokew down --name {location.name} removes the cluster and the file",
        ) from None
    if instance.target not in (*TARGETS, POD):
        raise UnknownTarget(
            f"the cluster {instance.name} is on the target {line(instance.target)}, which this version of "
            "Rayside does not know",
            hint="use the version that made it",
        )
    return instance


def names(state_folder: Path) -> list[str]:
    """Returns the names of the state folder's clusters, of damaged ones too. Raises UnsafeFolder."""
    if not require_own(state_folder).is_dir():
        return []
    return sorted(location.name for location in state_folder.iterdir() if (location / _RECORD).exists())


def all_recorded(state_folder: Path) -> Iterator[Instance]:
    """Yields each instance of the state folder whose record can be read, by name. Raises UnsafeFolder."""
    for name in names(state_folder):
        with contextlib.suppress(InvalidSetting, UnknownTarget, UnsafeFolder):
            if instance := read(state_folder / name):
                yield instance


def in_workspace(state_folder: Path) -> bool:
    """Returns whether this is the workspace in a cluster's pod, which another machine made.

    Raises UnsafeFolder.
    """
    return any(instance.target == POD for instance in all_recorded(state_folder))


def _fits(folder: Path) -> bool:
    return len(os.fsencode(folder)) <= _LONGEST_RAY_FOLDER
