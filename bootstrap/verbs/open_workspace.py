"""Verbs `open` and `vsix`: the workspace at the newest job's files, and its extension for a desktop."""

from __future__ import annotations

import os
import shlex
import sys
import webbrowser
from functools import partial
from pathlib import Path
from urllib.parse import quote

from bootstrap.codespaces import clickable
from bootstrap.settings import Settings
from bootstrap.sources.extensions import Extensions, this_platform, variant
from bootstrap.sources.vsix import read
from bootstrap.steps.workspace import WorkspaceFiles, healthz
from bootstrap.targets import choice
from bootstrap.targets.target import Target
from rayside.console import Console
from rayside.errors import InvalidArgument, NotRunning
from rayside.settings import environment_name
from rayside.system.shell import Shell


def open_workspace(settings: Settings, console: Console, *, browser: bool = True) -> None:
    """Prints the workspace's URL, and opens it if there is a screen. Raises NotRunning, RayDied."""
    target = choice.existing(settings, Shell())
    port, access = target.instance.ports.workspace, target.access
    folder = access.open_folder()
    if access.urls()["workspace"] is None:
        raise NotRunning(
            "this cluster has no browser workspace",
            hint=f"unset {environment_name('workspace')}, then ./invokew up",
        )
    if wrong := healthz(port):
        raise NotRunning(
            f"the browser workspace does not run: port {port} {wrong}",
            hint="./invokew up starts it",
        )
    url = link(target, folder)
    if console.as_json:
        console.document({"url": url, "folder": folder})
        return
    console.result(url)
    console.result(f"password {access.workspace_password()}")
    # A browser needs a screen, or BROWSER names a program for it, as in Codespaces.
    names = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    graphical = sys.platform == "darwin" or any(os.environ.get(name) for name in names)
    if browser and graphical and sys.stdout.isatty():
        webbrowser.open(url)


def link(target: Target, folder: str) -> str:
    return clickable(f"{target.access.urls()['workspace']}/?folder={quote(folder)}")


def vsix(settings: Settings, console: Console, output: Path) -> None:
    """Writes Ray Breakpoints to a file, for desktop VS Code. Raises InvalidArgument, as `WorkspaceFiles`."""
    if output.is_dir() or not os.access(output.parent, os.W_OK):
        raise InvalidArgument(f"{output} can't be written", hint="name a file in a folder of yours: --output")
    extensions = Extensions(settings, variant(settings, platform=this_platform()))
    shell = Shell()
    with console.progress(), console.work("vsix", "extension Ray Breakpoints"):
        files = WorkspaceFiles(shell, settings.cache_folder, extensions)
        files.pack(output, partial(console.note, "vsix"))
    if console.as_json:
        console.document({"file": str(output), "version": read(output).version})
        return
    console.result(str(output))
    console.result(f"Next: code --install-extension {shlex.quote(str(output))}")
