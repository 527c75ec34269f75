"""Path mapping: from a worker's files, in Ray's unpacked packages, to local folders of this machine.

Ray unpacks working_dir into <session>/runtime_resources/working_dir_files/_ray_pkg_<hash>/ and each
of py_modules into .../py_modules_files/_ray_pkg_<hash>/<package>/, on every node (seen on 2.60).
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from rayside.ray.metadata import LOCAL_ROOTS, PY_MODULES, WORKING_DIR
from rayside.ray.records import Job

# Folder of unpacked packages in the running session, on a node with Ray's default temporary directory.
RESOURCES = "/tmp/ray/session_latest/runtime_resources"

# Limit: symlinks in a job's metadata; an environment of packages may have thousands.
MOST_LINKS = 100
_PACKAGE = re.compile(r"(_ray_pkg_[0-9a-f]+)")
_SENT = re.compile(r"gcs://(_ray_pkg_[0-9a-f]+)\.(?:zip|tar\.gz|tar\.xz)")


@dataclass(frozen=True)
class PathMap:
    """Mapping from the name of an unpacked package, as in `_ray_pkg_9e9d6e2076c1b321`, to local folders.

    The target of a symlink in one of them has the symlink in its key: `_ray_pkg_9e9d6e2076c1b321/shared`.
    """

    roots: Mapping[str, Sequence[Path]] = field(default_factory=dict)

    @classmethod
    def of(cls, jobs: Iterable[Job]) -> PathMap:
        """Maps by the metadata of the jobs, oldest first, and the URIs of their packages in Ray."""
        roots: dict[str, list[Path]] = {}
        for job in jobs:
            packed: list[tuple[str, Path]] = []
            # Any submitter can write a job's metadata: invalid entries are ignored.
            with contextlib.suppress(ValueError, TypeError, AttributeError):
                packed = _packed(job)
            for package, folder in packed:
                known = roots.setdefault(package, [])
                if folder in known:
                    known.remove(folder)
                # Equal content has an equal name: the folder of the latest job is the one to show.
                known.insert(0, folder)
        return cls(roots)

    def local_roots(self) -> dict[str, list[str]]:
        """Returns every package's folders; the one to show is first."""
        return {package: [str(folder) for folder in folders] for package, folders in self.roots.items()}


def unpacked(job: Job) -> str | None:
    """Returns the folder of a job's working_dir below RESOURCES; None if Ray did not pack one."""
    package = _SENT.fullmatch(str(job.runtime_env.get("working_dir") or ""))
    return f"{RESOURCES}/working_dir_files/{package[1]}" if package else None


def _packed(job: Job) -> list[tuple[str, Path]]:
    """Returns package and folder of each local folder that the job uploaded; the one to show is last."""
    uris: list[tuple[str, Path, bool]] = []
    if job.metadata.get(WORKING_DIR):
        uris.append((job.runtime_env.get("working_dir") or "", Path(job.metadata[WORKING_DIR]), False))
    modules = json.loads(job.metadata.get(PY_MODULES, "[]"))
    for uri, module in zip(job.runtime_env.get("py_modules") or [], modules, strict=False):
        uris.append((uri, Path(module), True))
    written = json.loads(job.metadata.get(LOCAL_ROOTS, "{}"))
    packages: list[tuple[str, Path]] = []
    for uri, folder, is_module in uris:
        if not folder.is_absolute() or not (package := _PACKAGE.search(uri)):
            continue
        names = [folder]
        # A module's package contains the folder itself, under its real name.
        if (other := Path(written.get(str(folder), folder))) != folder:
            names += [other] if not is_module or other.name == folder.name else []
        packages += [(package[1], name.parent if is_module else name) for name in names]
        for target, link in islice(written.items(), MOST_LINKS):
            if folder in Path(link).parents and ".." not in Path(link).parts and target != "/":
                within = Path(link).relative_to(folder.parent if is_module else folder)
                packages.append((f"{package[1]}/{within}", Path(target)))
    return packages
