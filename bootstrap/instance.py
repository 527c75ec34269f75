"""Says which cluster is meant: one frozen identity, from which its names and places derive."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bootstrap.errors import InvalidSetting
from bootstrap.own_folder import require_own

# The names of Kubernetes' objects are RFC 1123 labels of at most 63 characters. KubeRay allows a RayCluster's
# name 53 (MaxRayClusterNameLength in ray-operator/controllers/ray/utils/constant.go), and we add to it.
LONGEST_NAME = 40
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
# A cluster's record, by which it is known again.
_RECORD = "instance.json"
# Kubernetes' objects of ours bear these labels.
MANAGED_BY = {"app.kubernetes.io/managed-by": "rayside"}
_LABEL = "rayside.dev/instance"


@dataclass(frozen=True)
class Ports:
    """Ports of 127.0.0.1 on this machine."""

    dashboard: int
    ray_client: int
    relay: int
    workspace: int


@dataclass(frozen=True)
class Instance:
    """One cluster: its lock, its folder, its secrets, labels and marks derive from this and nothing else.

    Attributes:
        name: what `--name` says, unique among one user's clusters on this machine.
        target: where Ray runs, a name of `settings.TARGETS` other than auto.
        namespace: the Kubernetes namespace that Ray is in.
        folder: the folder of the cluster's own files.
        ports: what this machine reaches it by.
    """

    name: str
    target: str
    namespace: str
    folder: Path
    ports: Ports

    @property
    def context(self) -> str:
        """Returns the name of its context in a kubeconfig, as kind gives it."""
        return f"kind-{self.name}"

    @property
    def token_file(self) -> Path:
        """Returns the file of Ray's token, which the relay asks for, too."""
        return self.own_folder / "token"

    @property
    def kubeconfig(self) -> Path:
        return self.own_folder / "kubeconfig"

    @property
    def cluster_file(self) -> Path:
        """Returns the file by which editors find the cluster."""
        return self.own_folder / "cluster.json"

    @property
    def own_folder(self) -> Path:
        """Returns the folder, the one way to the files in it, checked each time. Raises UnsafeFolder."""
        return require_own(self.folder)

    def lock(self, cache_folder: Path) -> Path:
        """Returns the lock for changing the cluster; it is in the cache, as the folder comes and goes."""
        key = hashlib.sha256(os.fsencode(self.folder)).hexdigest()[:12]
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
    def labels(self) -> dict[str, str]:
        """Returns the labels of all that is made for it in Kubernetes."""
        return {**MANAGED_BY, _LABEL: self.name}

    # --- its record ----------------------------------------------------------------------

    @property
    def record(self) -> Path:
        """Returns the file that `read` reads."""
        return self.own_folder / _RECORD

    def document(self) -> str:
        """Returns the text of its record."""
        known = {key: value for key, value in vars(self).items() if key != "folder"}
        return json.dumps({**known, "ports": dataclasses.asdict(self.ports)}, indent=2)


def read(folder: Path) -> Instance | None:
    """Returns the instance whose folder it is; None where there is none. Raises UnsafeFolder."""
    try:
        document: dict[str, Any] = json.loads((require_own(folder) / _RECORD).read_text())
        ports = Ports(**{key: int(value) for key, value in document["ports"].items()})
        return Instance(folder.name, str(document["target"]), str(document["namespace"]), folder, ports)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InvalidSetting(
            f"{folder / _RECORD} can't be read", hint=f"remove {folder}, then ./invokew up"
        ) from None


def all_instances(state_folder: Path) -> Iterator[Instance]:
    """Yields each instance below the state folder, by name. Raises UnsafeFolder."""
    if require_own(state_folder).is_dir():
        for folder in sorted(state_folder.iterdir()):
            if _NAME.fullmatch(folder.name) and (instance := read(folder)):
                yield instance


def require_name(name: str) -> None:
    """Checks that Kubernetes can name its objects after it. Raises InvalidSetting."""
    if not _NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        raise InvalidSetting(
            f"name is {name!r}, which can't be a name in Kubernetes",
            hint=f"choose at most {LONGEST_NAME} of a-z, 0-9 and -, a letter first and no - at the end",
        )
