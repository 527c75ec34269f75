"""Browser workspace of a local Ray cluster: code-server, installed in the cache, and its process."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import psutil

from bootstrap import cache, pip
from bootstrap.codespaces import trusted_origins
from bootstrap.errors import BadChecksum, NoNetwork
from bootstrap.instance import Instance
from bootstrap.settings import CODE_SERVER_VERSION, ROOT
from bootstrap.sources.extensions import OWN, Extensions, lab_files, own_files
from bootstrap.steps.secret_file import SecretFile
from rayside.errors import CommandFailed, RaysideError
from rayside.private_file import write_private
from rayside.ray.job_folders import RESOURCES, unpacked
from rayside.ray.metadata import WORKING_DIR
from rayside.ray.records import Job
from rayside.settings import environment_name
from rayside.steps.cluster_file import ClusterFile
from rayside.steps.ray_beside import FOREIGN, RayBeside, authentication
from rayside.steps.step import Report, Status, missing, pending, ready
from rayside.system import marks
from rayside.system.background import Background
from rayside.system.free_port import require_port
from rayside.system.shell import Shell

SOURCE = ROOT / "image" / "workspace"
# Folder that it opens by default.
FOLDER = ROOT / "example" / "working_dir"
# Inputs of code-server's installation: a change to another file of the folder does not rebuild it.
_INPUTS = ("install", "prune", "node.txt", "package.json", "package-lock.json", "stand-ins")
# npm's errors for an unreachable registry.
_UNREACHABLE = ("ENOTFOUND", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "EAI_AGAIN")
# Variables with which code-server would act as a part of another editor, listen elsewhere, or accept other
# users.
_UNWANTED = (
    *("VSCODE_", "CODE_SERVER_", "ELECTRON_", "NODE_OPTIONS", "PORT", "PASSWORD", "HASHED_PASSWORD"),
    *FOREIGN,
)

# Builds beside a starting Ray have a low priority, so that the example's stop does not wait for them.
_BEHIND = ("nice", "-n", "15")


@dataclass(frozen=True)
class WorkspaceFiles:
    """Node and code-server, and the extensions installed, each in a folder named by a hash of its inputs."""

    shell: Shell
    cache_folder: Path
    extensions: Extensions
    name: str = "workspace-files"
    title: str = f"code-server {CODE_SERVER_VERSION} and its extensions"
    needs: tuple[str, ...] = ("disk", "extensions")

    @cached_property
    def folder(self) -> Path:
        """Returns code-server's folder: `bin/node`, `node_modules`, and all of Node in `build/node`."""
        files = sorted(file for name in _INPUTS for file in _files(SOURCE / name))
        key = cache.key(*(file.read_text() for file in files), platform.system(), platform.machine())
        return self.cache_folder / f"code-server-{CODE_SERVER_VERSION}-{key}"

    @property
    def installed(self) -> Path:
        """Returns the folder of the extensions, to be copied, as code-server writes into its own."""
        return self._extensions / "installed"

    @property
    def node(self) -> Path:
        return self.folder / "bin" / "node"

    @property
    def code_server(self) -> list[str]:
        """Returns the program and its first argument."""
        return [str(self.node), str(self.folder / "node_modules/code-server/out/node/entry.js")]

    @cached_property
    def _extensions(self) -> Path:
        files = {**own_files(), **lab_files()}
        contents = (f"{name} {file.read_bytes().hex()}" for name, file in files.items())
        key = cache.key(
            self.folder.name,
            *contents,
            *(extension.sha256 for extension in self.extensions.variant.extensions),
        )
        return self.cache_folder / f"workspace-extensions-{key}"

    def check(self) -> Status:
        if not self.folder.exists():
            return missing("not made yet")
        if not self._extensions.exists():
            return missing("its extensions are not installed yet")
        return ready(str(self.folder))

    def apply(self, report: Report) -> None:
        """Installs them. Raises NoNetwork, BadChecksum, CommandFailed."""
        self._install(report)
        self._install_extensions(report)

    def undo(self, report: Report) -> None:
        cache.end_abandoned(self.folder)
        cache.end_abandoned(self._extensions)

    def pack(self, vsix: Path, report: Report) -> None:
        """Packs Ray Breakpoints, with the npm that comes with code-server. Raises as `apply`."""
        self._install(report)
        with tempfile.TemporaryDirectory() as home:
            draft = Path(home, vsix.name)
            self._pack(draft, {**os.environ, "HOME": home}, report)
            shutil.move(draft, vsix)

    def _pack(self, vsix: Path, env: Mapping[str, str], report: Report) -> None:
        report("packing Ray Breakpoints")
        try:
            pack: list[str | Path] = [*_BEHIND, OWN / "pack", self.folder / "build/node/bin", vsix]
            self.shell.run(pack, env=env, on_line=report)
        except CommandFailed as error:
            raise explained(error) from None

    def _install(self, report: Report) -> None:
        with cache.making(self.folder, report) as draft:
            if draft is None:
                return
            build = draft / "build"
            env = cache.environment(self.folder)
            node_there: list[str | Path] = ["--target", build / "python"]
            command: list[str | Path] = [*_BEHIND, SOURCE / "install", sys.executable, build, draft]
            try:
                report("downloading Node")
                pip.install(
                    self.shell, sys.executable, SOURCE / "node.txt", node_there, env=env, report=report
                )
                self.shell.run(command, env=env, on_line=report)
            except (CommandFailed, NoNetwork, BadChecksum) as error:
                raise explained(error) from None
            # The second copy of Node keeps only npm, which packing an extension needs.
            node = build / "node"
            (node / "bin" / "node").unlink()
            (node / "bin" / "node").symlink_to("../../../bin/node")
            for unneeded in ("include", "share"):
                shutil.rmtree(node / unneeded)

    def _install_extensions(self, report: Report) -> None:
        with cache.making(self._extensions, report) as draft:
            if draft is None:
                return
            env = cache.environment(self._extensions) | {"EXTENSIONS_GALLERY": "{}", "HOME": str(draft)}
            vsix = draft / "ray-breakpoints.vsix"
            self._pack(vsix, env, report)
            report("installing extensions")
            got = self.extensions.variant.extensions
            files = [*(extension.file for extension in got), vsix]
            install: list[str | Path] = [
                *_BEHIND,
                SOURCE / "install-extensions",
                self.folder,
                draft / "installed",
                *files,
            ]
            self.shell.run(install, env=env)
            vsix.unlink()
            record = json.dumps([extension.document() for extension in got], indent=2)
            (draft / "extensions.json").write_text(record)


@dataclass(frozen=True)
class LocalWorkspace:
    """code-server on this machine's loopback address, found again by its pid and its response."""

    shell: Shell
    instance: Instance
    head: RayBeside
    files: WorkspaceFiles
    password: SecretFile
    cluster_file: ClusterFile
    name: str = "workspace"
    title: str = "browser workspace"
    needs: tuple[str, ...] = ("workspace-files", "workspace-password", "cluster-file")
    # It responds after 0.6 s; later on a machine that also starts Ray.
    patience: float = 60.0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.instance.ports.workspace}"

    @property
    def process(self) -> Background:
        """Returns code-server's process in the background."""
        folder = self.instance.folder
        return Background(
            self.shell,
            folder,
            "workspace",
            marks.WORKSPACE,
            patience=3,
            without=_UNWANTED,
            variables=self.environment(),
        )

    @property
    def _data(self) -> Path:
        return self.instance.folder / "workspace"

    @property
    def spec(self) -> dict[str, Any]:
        """Returns its spec; a workspace that was started with another spec is replaced."""
        sources = ("config.yaml", "settings.json", "seed-extensions.js")
        return {
            "command": self.command(),
            "extensions": str(self.files.installed),
            "python": str(self.head.programs),
            "password": cache.key(self.password.text() or ""),
            "sources": cache.key(*((SOURCE / name).read_text() for name in sources)),
            "environment": cache.key(json.dumps(self.cluster_file.environment), self.head.url),
        }

    def present(self) -> bool:
        """Returns whether it runs: then it holds its port."""
        return bool(self.leftovers())

    def check(self) -> Status:
        if absent := self.process.absent(self.spec):
            return missing(absent)
        if wrong := healthz(self.instance.ports.workspace):
            return pending(f"port {self.instance.ports.workspace} {wrong}")
        return ready(f"{self.url}, process {self.process.pid}")

    def apply(self, report: Report) -> None:
        self.process.end(report)
        require_port("workspace_port", self.instance.ports.workspace)
        self._write_settings()
        seed = [
            self.files.node,
            SOURCE / "seed-extensions.js",
            self.files.installed,
            self._data / "extensions",
        ]
        self.shell.run(seed)
        report("starting")
        self.process.start(self.command(), spec=self.spec)

    def undo(self, report: Report) -> None:
        self.process.end(report)

    def command(self) -> list[str]:
        """Returns the command, without the password, as the process list is public."""
        return [
            *[*self.files.code_server, "--config", str(SOURCE / "config.yaml")],
            *["--bind-addr", f"127.0.0.1:{self.instance.ports.workspace}"],
            *["--user-data-dir", str(self._data), "--extensions-dir", str(self._data / "extensions")],
            # Jobs run here as the user, on the user's own files: docs/adr/0012.
            "--disable-workspace-trust",
            *(f"--trusted-origins={origin}" for origin in trusted_origins(self.instance.ports.workspace)),
            str(FOLDER),
        ]

    def environment(self) -> dict[str, str]:
        """Returns its environment and its terminals', with the cluster's `python`, `ray` and `./invokew`.

        code-server removes the password from its terminals' environment. For a plain password it computes a
        slow hash for each request, some 0.2 s of CPU time; a SHA-256 is compared with the cookie. For a
        password as long and random as ours both are equally safe.
        """
        password = self.password.text()
        return {
            **self.cluster_file.environment,
            "HASHED_PASSWORD": hashlib.sha256(password.encode()).hexdigest() if password else "",
            "PATH": f"{self.head.programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            **authentication(self.head),
            "RAY_API_SERVER_ADDRESS": self.head.url,
            "RAYSIDE_CLUSTER_FILE": str(self.cluster_file.file),
            "RAYSIDE_WORKSPACE": "1",
            "RAYSIDE_PROGRAMS": str(self.head.programs),
            "EXTENSIONS_GALLERY": os.environ.get("EXTENSIONS_GALLERY", "{}"),
        }

    def leftovers(self) -> list[psutil.Process]:
        """Returns all running processes of this workspace, recorded or not."""
        return self.process.leftovers()

    def _write_settings(self) -> None:
        """Writes the editor's user settings, unless they exist, and its machine settings."""
        for name in ("User", "Machine"):
            (self._data / name).mkdir(parents=True, exist_ok=True, mode=0o700)
        users = self._data / "User" / "settings.json"
        if not users.exists():
            shutil.copyfile(SOURCE / "settings.json", users)
        python = {"python.defaultInterpreterPath": str(self.head.programs / "python")}
        write_private(self._data / "Machine" / "settings.json", json.dumps(python))


def local_folder(jobs: Sequence[Job]) -> str:
    """Returns the folder to open on this machine, the newest job's working_dir; `jobs` are oldest first."""
    folders = (job.metadata.get(WORKING_DIR, "") for job in reversed(jobs))
    return next((folder for folder in folders if folder and Path(folder).is_dir()), str(FOLDER))


def head_folder(jobs: Sequence[Job]) -> str:
    """Returns the folder to open in a head's pod, the newest job's unpacked one; `jobs` are oldest first."""
    folders = (unpacked(job) for job in reversed(jobs))
    return next((folder for folder in folders if folder), RESOURCES)


def healthz(port: int) -> str:
    """Returns the error of the workspace at `port`; empty if it is healthy."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/healthz")
        status = connection.getresponse().status
        return "" if status == http.client.OK else f"answers HTTP {status}"
    except (OSError, http.client.HTTPException):
        return "does not answer"
    finally:
        connection.close()


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]


def explained(error: CommandFailed | NoNetwork | BadChecksum) -> RaysideError:
    """Returns the error for the output of npm or pip, with a hint to do without a workspace."""
    without = f"or do without a workspace: {environment_name('workspace')}=false"
    if "EINTEGRITY" in error.message:
        return BadChecksum(
            f"a package of the workspace is not what its lock file names:\n{error.message}",
            hint=f"ask who runs the package mirror; {without}",
        )
    if any(sign in error.message for sign in _UNREACHABLE):
        return NoNetwork(
            "the registry of npm could not be reached for the browser workspace",
            hint=f"connect, or set NPM_CONFIG_REGISTRY, and run it again; {without}",
        )
    return type(error)(error.message, hint=f"{error.hint}; {without}")
