"""Tests a folder that a job wrote, opened as the workspace on kind opens it: nothing in it runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from bootstrap.steps.workspace import SOURCE, WorkspaceFiles, healthz
from rayside.steps.step import Condition
from rayside.waiting import until
from tests.browser.workbench import Workbench, log_in, ready, tab
from tests.integration.conftest import free_ports
from tests.patience import PATIENCE
from tests.targets import local_target

PASSWORD = "a password of the test"


@dataclass(frozen=True)
class Written:
    """Holds a folder with everything that an editor would run; `ran` has the names of what did run."""

    folder: Path
    marks: Path

    def ran(self) -> set[str]:
        return {mark.name for mark in self.marks.iterdir()}


@pytest.fixture
def written(tmp_path: Path) -> Written:
    planted = Written(tmp_path / "job", tmp_path / "marks")
    planted.marks.mkdir()
    (planted.folder / ".vscode").mkdir(parents=True)
    programs = {}
    for name in ("interpreter", "terminal", "git", "hook"):
        programs[name] = str(planted.folder / name)
        Path(programs[name]).write_text(f'#!/bin/sh\ntouch {planted.marks}/{name}\nexec /bin/bash "$@"\n')
        Path(programs[name]).chmod(0o755)
    task = {
        "label": "build",
        "type": "shell",
        "command": f"touch {planted.marks}/task",
        "runOptions": {"runOn": "folderOpen"},
    }
    (planted.folder / ".vscode" / "tasks.json").write_text(json.dumps({"version": "2.0.0", "tasks": [task]}))
    settings = {
        "git.path": programs["git"],
        "python.defaultInterpreterPath": programs["interpreter"],
        "security.workspace.trust.enabled": False,
        "task.allowAutomaticTasks": "on",
        "terminal.integrated.defaultProfile.linux": "theirs",
        "terminal.integrated.profiles.linux": {"theirs": {"path": programs["terminal"]}},
    }
    (planted.folder / ".vscode" / "settings.json").write_text(json.dumps(settings))
    (planted.folder / "program.py").write_text("print(1)\n")
    if shutil.which("git"):
        subprocess.run(["git", "init", "--quiet", str(planted.folder)], check=True)
        monitor = ["git", "-C", str(planted.folder), "config", "core.fsmonitor", programs["hook"]]
        subprocess.run(monitor, check=True)
    return planted


@pytest.fixture(scope="module")
def files() -> WorkspaceFiles:
    step = local_target().workspace_files
    if step.check().condition is Condition.MISSING:
        step.apply(print)
    return step


@dataclass(frozen=True)
class Server:
    """Runs code-server with the image's own options and settings, as in the head's pod."""

    files: WorkspaceFiles
    folder: Path

    def address(self, folder: Path) -> str:
        return f"http://127.0.0.1:{self.port}/?folder={folder}"

    @property
    def port(self) -> int:
        return int((self.folder / "port").read_text())

    def command(self, *more: str) -> list[str]:
        data = self.folder / "data"
        return [
            *[*self.files.code_server, "--config", str(SOURCE / "config.yaml"), *more],
            *["--bind-addr", f"127.0.0.1:{self.port}", "--user-data-dir", str(data)],
            *["--extensions-dir", str(data / "extensions")],
        ]


@pytest.fixture
def server(files: WorkspaceFiles, tmp_path: Path) -> Server:
    started = Server(files, tmp_path / "server")
    (started.folder / "data" / "User").mkdir(parents=True)
    (started.folder / "port").write_text(str(free_ports(1)[0]))
    shutil.copyfile(SOURCE / "settings.json", started.folder / "data" / "User" / "settings.json")
    seed = [
        files.node,
        SOURCE / "seed-extensions.js",
        files.installed,
        started.folder / "data" / "extensions",
    ]
    subprocess.run(seed, check=True)
    return started


def running(server: Server, *more: str) -> Iterator[None]:
    environment = {**os.environ, "PASSWORD": PASSWORD, "EXTENSIONS_GALLERY": "{}", "RAYSIDE_WORKSPACE": "1"}
    with (server.folder / "log").open("wb") as log:
        process = subprocess.Popen(
            server.command(*more), env=environment, stdout=log, stderr=log, start_new_session=True
        )
        try:
            assert until(lambda: healthz(server.port), lambda problem: not problem, 60) == ""
            yield
        finally:
            os.killpg(process.pid, 15)
            process.wait(30)


@pytest.fixture
def as_on_kind(server: Server) -> Iterator[Server]:
    for _ in running(server):
        yield server


@pytest.fixture
def without_trust(server: Server) -> Iterator[Server]:
    """Turns workspace trust off: then the same folder does run its programs."""
    settings = server.folder / "data" / "User" / "settings.json"
    automatic = {**json.loads(settings.read_text()), "task.allowAutomaticTasks": "on"}
    settings.write_text(json.dumps(automatic))
    for _ in running(server, "--disable-workspace-trust"):
        yield server


def shell_ran(workbench: Workbench, written: Written, mark: str) -> None:
    """Waits until a command has run in a terminal, so that what starts by itself had time to start."""
    workbench.type_in_terminal(f"touch {written.marks}/{mark}")
    assert until(written.ran, lambda ran: mark in ran, PATIENCE) >= {mark}


def test_nothing_of_it_runs_and_nothing_is_asked(
    as_on_kind: Server, written: Written, browser: Browser, tmp_path: Path
) -> None:
    with tab(browser, as_on_kind.address(written.folder), tmp_path / "evidence") as page:
        log_in(page, PASSWORD)
        workbench = ready(page)
        expect(page.locator(".statusbar-item", has_text="Restricted Mode")).to_be_visible()
        expect(page.locator(".monaco-dialog-box")).to_have_count(0)
        shell_ran(workbench, written, "shell")
        workbench.open_file("program.py")
        # Our view works all the same.
        workbench.open_view("Ray")
        expect(workbench.view).to_be_visible()
        expect(page.locator(".monaco-dialog-box")).to_have_count(0)
    assert written.ran() == {"shell"}


def test_without_trust_the_same_folder_runs_its_programs(
    without_trust: Server, written: Written, browser: Browser, tmp_path: Path
) -> None:
    with tab(browser, without_trust.address(written.folder), tmp_path / "evidence") as page:
        log_in(page, PASSWORD)
        # Beside the task's terminal VS Code may open one by itself, or none: this one is asked for. Nothing
        # is typed, for which of them would get it is not known.
        ready(page).command("Terminal: Create New Terminal")
        expected = {"task", "terminal", *(["hook"] if shutil.which("git") else [])}
        assert until(written.ran, lambda ran: expected <= ran, PATIENCE) >= expected
