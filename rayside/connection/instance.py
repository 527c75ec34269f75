"""Identity of a cluster: the source of its names, folders, ports and marks."""

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

# The dashboard's address on the head's node, at Ray's default port.
USUAL_DASHBOARD = "http://127.0.0.1:8265"

# File of a cluster's record, in its folder.
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
    """One cluster. Its lock, files, secrets, labels and marks derive from this identity alone.

    Attributes:
        name: the value of `--name`, unique among the clusters of one state folder.
        target: where Ray runs, a name of `settings.TARGETS` other than auto, or `settings.POD`.
        namespace: Ray's Kubernetes namespace.
        context: the kubeconfig context of its Kubernetes cluster; empty without Kubernetes.
        location: the folder of its files, unchecked; use `folder` instead.
        ports: local ports that lead to it.
        source: the source of its programs and images; empty if undecided.
        address: the dashboard of an existing Ray cluster, as in http://head:8265; empty if Rayside made it.
        ssh: the OpenSSH host of `address`; empty without SSH.
        their_kubeconfig: the user's kubeconfig with `context`, for an existing Kubernetes cluster.
        their_cluster: the existing RayCluster there, in `namespace`; empty if Rayside makes one there.
        workspace_pod: the pod there with the workspace and the relay; empty if they are elsewhere.
        user: the user's name on a shared Ray cluster; empty if it has one user.
        workshop: the name of the workshop's cluster, for an attendee's place; empty for any other.
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
        """Returns whether Rayside makes its RayCluster in an existing Kubernetes cluster."""
        return bool(self.their_kubeconfig and not self.their_cluster)

    @property
    def dashboard(self) -> str:
        """Returns the address of Ray's dashboard, reachable from this machine."""
        through_here = f"http://127.0.0.1:{self.ports.dashboard}"
        return through_here if self.ssh or self.their_cluster else self.address or through_here

    @property
    def place(self) -> str:
        """Returns the location of a Ray cluster of the target `cluster`, for people."""
        if self.their_kubeconfig:
            name = self.their_cluster or self.ray_cluster
            return f"the RayCluster {name} in {self.namespace} of {self.context}"
        return f"{self.address} on {self.ssh}" if self.ssh else self.address

    @property
    def folder(self) -> Path:
        """Returns the folder of its files, checked on each access. Raises UnsafeFolder."""
        return require_own(self.location)

    @property
    def token_file(self) -> Path:
        """Returns the file of Ray's token, which authenticates clients of the relay, too."""
        return self.folder / "token"

    @property
    def cluster_file(self) -> Path:
        """Returns the file through which editors discover the cluster."""
        return self.folder / "cluster.json"

    @property
    def mark(self) -> str:
        """Returns the value of the environment variables that mark its processes: system/marks.py."""
        return str(self.location)

    @property
    def verb_options(self) -> str:
        """Returns the options that select this cluster in a command; empty for the default cluster."""
        return "" if self.name == DEFAULT_NAME else f" --name {self.name}"

    def lock(self, cache_folder: Path) -> Path:
        """Returns the lock file for changes to the cluster, in the cache: `folder` may be removed."""
        return lock(self.location, cache_folder)

    @property
    def ray_cluster(self) -> str:
        """Returns the RayCluster's name, also the name of KubeRay's Secret with Ray's token."""
        return self.name

    # --- its record ----------------------------------------------------------------------

    @property
    def record(self) -> Path:
        """Returns the file of its record, for `read`."""
        return self.folder / _RECORD

    def document(self) -> str:
        """Returns the JSON text of its record."""
        known = {key: value for key, value in vars(self).items() if key not in ("name", "location")}
        return json.dumps({**known, "ports": dataclasses.asdict(self.ports)}, indent=2)


def lock(location: Path, cache_folder: Path) -> Path:
    """Returns the lock file for changes to the cluster in the folder `location`, which need not exist."""
    key = hashlib.sha256(os.fsencode(location)).hexdigest()[:12]
    return cache_folder / f"instance-{key}.lock"


AnyInstance = TypeVar("AnyInstance", bound=Instance)


def read(location: Path, kind: type[AnyInstance]) -> AnyInstance | None:
    """Returns the instance recorded in this folder; None without a record.

    Raises UnsafeFolder, and InvalidSetting if the record can't be read.
    """
    try:
        document: dict[str, Any] = json.loads((require_own(location) / _RECORD).read_text())
        ports = Ports(**{port: int(number) for port, number in document.pop("ports").items()})
        # Another version, or the other product, may have recorded more fields.
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
    """Returns the names of the clusters in a state folder, also with damaged records. Raises UnsafeFolder."""
    if not require_own(state_folder).is_dir():
        return []
    return sorted(location.name for location in state_folder.iterdir() if (location / _RECORD).exists())


def all_recorded(state_folder: Path, kind: type[AnyInstance]) -> Iterator[AnyInstance]:
    """Yields the instances of a state folder with readable records, by name. Raises UnsafeFolder."""
    for name in names(state_folder):
        with contextlib.suppress(InvalidSetting, UnsafeFolder):
            if instance := read(state_folder / name, kind):
                yield instance
