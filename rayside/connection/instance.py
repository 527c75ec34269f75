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
from typing import Any, TypeVar

from rayside.default_folders import DEFAULT_NAME
from rayside.errors import InvalidSetting, UnsafeFolder
from rayside.own_folder import require_own

# The dashboard, at Ray's own default port, as the head's node reaches it.
USUAL_DASHBOARD = "http://127.0.0.1:8265"

# A cluster's record, by which it is known again, lies in its folder.
_RECORD = "instance.json"


@dataclass(frozen=True)
class Ports:
    """Ports of 127.0.0.1 on this machine, 0 if unused; the setting `x_port` asks for the port `x`."""

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
        address: the dashboard of an existing Ray cluster, as in http://head:8265; empty where it is ours.
        ssh: the host on which `address` is, for OpenSSH; empty where it is reached in another way.
        their_kubeconfig: the user's file with `context`, where that leads to an existing Kubernetes.
        their_cluster: the existing RayCluster there, in `namespace`; empty where ours is made there.
        workspace_pod: the pod there that has its workspace and its relay; empty where they are elsewhere.
        user: the user's name on a shared Ray cluster; empty where it is one person's.
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
        """Returns whether its RayCluster is made by us, in an existing Kubernetes."""
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
    def token_file(self) -> Path:
        """Returns the file of Ray's token, which the relay asks for, too."""
        return self.folder / "token"

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
        return lock(self.location, cache_folder)

    @property
    def ray_cluster(self) -> str:
        """Returns the RayCluster's name; KubeRay's Secret with Ray's token is called so, too."""
        return self.name

    # --- its record ----------------------------------------------------------------------

    @property
    def record(self) -> Path:
        """Returns the file that `read` reads."""
        return self.folder / _RECORD

    def document(self) -> str:
        """Returns the text of its record."""
        known = {key: value for key, value in vars(self).items() if key not in ("name", "location")}
        return json.dumps({**known, "ports": dataclasses.asdict(self.ports)}, indent=2)


def lock(location: Path, cache_folder: Path) -> Path:
    """Returns the lock for changing the cluster whose folder is `location`, whether it is there or not."""
    key = hashlib.sha256(os.fsencode(location)).hexdigest()[:12]
    return cache_folder / f"instance-{key}.lock"


AnyInstance = TypeVar("AnyInstance", bound=Instance)


def read(location: Path, kind: type[AnyInstance]) -> AnyInstance | None:
    """Returns the instance that has this folder; None where there is none.

    Raises UnsafeFolder, and InvalidSetting where its record can't be read.
    """
    try:
        document: dict[str, Any] = json.loads((require_own(location) / _RECORD).read_text())
        ports = Ports(**{port: int(number) for port, number in document.pop("ports").items()})
        # Another version, or the other product, may have recorded more.
        known = {field.name for field in dataclasses.fields(kind)}
        texts = {key: str(value) for key, value in document.items() if key in known}
        return kind(name=location.name, location=location, ports=ports, **texts)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise InvalidSetting(
            f"{location / _RECORD} is not what Rayside wrote there",
            hint=f"./invokew down --name {location.name} removes the cluster and the file",
        ) from None


def names(state_folder: Path) -> list[str]:
    """Returns the names of the state folder's clusters, of damaged ones too. Raises UnsafeFolder."""
    if not require_own(state_folder).is_dir():
        return []
    return sorted(location.name for location in state_folder.iterdir() if (location / _RECORD).exists())


def all_recorded(state_folder: Path, kind: type[AnyInstance]) -> Iterator[AnyInstance]:
    """Yields each instance of the state folder whose record can be read, by name. Raises UnsafeFolder."""
    for name in names(state_folder):
        with contextlib.suppress(InvalidSetting, UnsafeFolder):
            if instance := read(state_folder / name, kind):
                yield instance
