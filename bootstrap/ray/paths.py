"""Where a worker's files lie on this machine: Ray's unpacked packages, mapped back to local folders.

Ray unpacks working_dir into <session>/runtime_resources/working_dir_files/_ray_pkg_<hash>/ and each
of py_modules into .../py_modules_files/_ray_pkg_<hash>/<package>/, on every node (seen on 2.60).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from bootstrap.ray.jobs import PY_MODULES, WORKING_DIR
from bootstrap.ray.state import Job

_UNPACKED = re.compile(r"/(?:working_dir|py_modules)_files/(_ray_pkg_[0-9a-f]+)/(.+)$")
_PACKAGE = re.compile(r"(_ray_pkg_[0-9a-f]+)")


@dataclass(frozen=True)
class PathMap:
    """From the name of an unpacked package, as in `_ray_pkg_9e9d6e2076c1b321`, to a local folder."""

    roots: dict[str, Path] = field(default_factory=dict)

    @classmethod
    def of(cls, jobs: Iterable[Job]) -> PathMap:
        """From what `submit` kept with each job, and the URIs that Ray gave its packages."""
        roots: dict[str, Path] = {}
        for job in jobs:
            modules = json.loads(job.metadata.get(PY_MODULES, "[]"))
            uris = job.runtime_env.get("py_modules") or []
            # A module's package holds the folder itself, so the root is the folder above it.
            pairs = [(uri, Path(local).parent) for uri, local in zip(uris, modules, strict=False)]
            if job.metadata.get(WORKING_DIR):
                pairs.append((job.runtime_env.get("working_dir") or "", Path(job.metadata[WORKING_DIR])))
            for uri, local in pairs:
                if package := _PACKAGE.search(uri):
                    roots[package[1]] = local
        return cls(roots)

    def local(self, remote: str) -> str | None:
        """The local file for a worker's; None where it was not sent from here, or is gone."""
        found = _UNPACKED.search(remote)
        if not found or found[1] not in self.roots:
            return None
        file = self.roots[found[1]] / found[2]
        return str(file) if file.is_file() else None
