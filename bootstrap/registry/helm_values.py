"""Values for KubeRay's Helm charts, with which these pull from a mirror."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from bootstrap.bundle.manifest import Manifest
from bootstrap.registry.address import Address
from bootstrap.settings import RAY_VERSION
from rayside.errors import InvalidArgument

# The charts are in KubeRay's repository: helm-chart/kuberay-operator and helm-chart/ray-cluster.
_OPERATOR, _RAY = "kuberay-operator", "ray-cluster"
_HEADER = "# Rayside writes this file anew: keep your own values in another one. It is for KubeRay's chart "
_SECRET = "mirror-login"


def require_free(folder: Path) -> None:
    """Raises InvalidArgument if a foreign file exists there, or the folder can't be made."""
    if not folder.parent.is_dir():
        raise InvalidArgument(f"there is no folder {folder.parent}", hint="make it, or choose another place")
    if folder.exists() and not folder.is_dir():
        raise InvalidArgument(f"{folder} is no folder", hint="name another place")
    for chart in (_OPERATOR, _RAY):
        file = _file(folder, chart)
        if not _is_ours(file):
            raise InvalidArgument(
                f"{file} is there, and Rayside did not write it: it would be lost", hint="name another folder"
            )


def write(folder: Path, manifest: Manifest, address: Address, *, has_login: bool) -> list[Path]:
    """Writes the values of each chart, and returns the files. Raises InvalidArgument.

    `has_login`: the registry requires a login, so pods name a Secret; a comment in the file has the command
    that makes it.
    """
    secrets: dict[str, Any] = {"imagePullSecrets": [{"name": _SECRET}]} if has_login else {}
    values = {
        _OPERATOR: {"image": _image(manifest, address, "operator"), **secrets},
        _RAY: {
            "image": _image(manifest, address, "ray"),
            "head": {"rayVersion": RAY_VERSION},
            **secrets,
        },
    }
    makes = f"# kubectl create secret docker-registry {_SECRET} --docker-server={address.host} ...\n"
    try:
        folder.mkdir(exist_ok=True)
        for chart, document in values.items():
            text = yaml.safe_dump(document, sort_keys=False)
            _file(folder, chart).write_text(f"{_HEADER}{chart}.\n{makes if has_login else ''}{text}")
    except OSError as error:
        raise InvalidArgument(
            f"{folder} could not be written: {error.strerror or error}", hint="choose another place"
        ) from None
    return [_file(folder, chart) for chart in values]


def _is_ours(file: Path) -> bool:
    """Returns whether the file may be written: it does not exist, or was written here."""
    try:
        # A link would redirect the write.
        return not file.is_symlink() and file.read_text().startswith(_HEADER)
    except FileNotFoundError:
        return True
    except (OSError, ValueError):
        return False


def _file(folder: Path, chart: str) -> Path:
    return folder / f"{chart}.yaml"


def _image(manifest: Manifest, address: Address, name: str) -> dict[str, str]:
    """Returns the image's values, by digest: the charts write `repository:tag`, and a tag can be moved."""
    image = manifest.image(name)
    repository = f"{address}/{image.reference.rpartition(':')[0]}@sha256"
    return {"repository": repository, "tag": image.manifest.digest, "pullPolicy": "IfNotPresent"}
