"""Verb `open`: the browser workspace at the files of the newest job."""

from __future__ import annotations

import os
import sys
import webbrowser
from urllib.parse import quote

from bootstrap.codespaces import clickable
from bootstrap.settings import Settings, environment_name
from bootstrap.shell import Shell
from bootstrap.steps.workspace import healthz
from bootstrap.targets import choice
from bootstrap.targets.target import Target
from rayside.console import Console
from rayside.errors import NotRunning


def open_workspace(settings: Settings, console: Console, *, browser: bool = True) -> None:
    """Prints its address, and opens it where somebody sits before a screen. Raises NotRunning, RayDied."""
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
    # A browser has a screen, or BROWSER says, as in Codespaces, how to reach it.
    names = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    graphical = sys.platform == "darwin" or any(os.environ.get(name) for name in names)
    if browser and graphical and sys.stdout.isatty():
        webbrowser.open(url)


def link(target: Target, folder: str) -> str:
    return clickable(f"{target.access.urls()['workspace']}/?folder={quote(folder)}")
