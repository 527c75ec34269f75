"""Tests the local browser workspace: real code-server, made from PyPI and npm, and who it lets in."""

from __future__ import annotations

import http.client
import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import pytest
import requests

from bootstrap.errors import NoNetwork
from bootstrap.settings import ROOT, Settings
from bootstrap.sources.extensions import OWN
from bootstrap.sources.vsix import UNIVERSAL, read
from bootstrap.steps.workspace import FOLDER, SOURCE, WorkspaceFiles
from bootstrap.targets.local import Local
from rayside.console import Console
from rayside.errors import USAGE
from rayside.steps import graph
from rayside.steps.step import Condition
from rayside.system import marks, processes
from rayside.system.shell import Shell
from tests.integration.conftest import Rayside, apart, of_each
from tests.integration.listeners import listeners
from tests.integration.vsix import vsix
from tests.patience import PATIENCE
from tests.targets import local_target

A_MINUTE, AN_HOUR = 2, 12
LIMITED = "Login rate limited"


def are_throttled(login: Callable[[str], str], password: str) -> None:
    """Asserts the limits of a workspace where nobody has tried yet; `login` returns its answer's text."""
    began, tried = time.monotonic(), 0
    while LIMITED not in login("wrong"):
        tried += 1
        elapsed = time.monotonic() - began
        # Each limit gives back, evenly, what it has taken.
        assert tried <= A_MINUTE + AN_HOUR + elapsed * A_MINUTE / 60 + elapsed * AN_HOUR / 3600
    assert tried >= A_MINUTE + AN_HOUR
    assert LIMITED in login(password)


# A command that starts a workspace ends before it; here the tests do, and would be told of it.
pytestmark = pytest.mark.filterwarnings(
    "ignore:subprocess .* is still running:ResourceWarning",
    "ignore:Exception ignored in. <function Popen.__del__:pytest.PytestUnraisableExceptionWarning",
)
DEBUGPY = ("ms-python.debugpy", "2025.10.0")


@dataclass(frozen=True)
class Workspace:
    """Holds the workspace's steps without Ray, which it does not need to run."""

    settings: Settings

    @property
    def target(self) -> Local:
        return local_target(self.settings)

    @property
    def folder(self) -> Path:
        return self.target.instance.folder

    def up(self, **changed: Any) -> dict[str, bool]:
        """Brings it up, and returns whether each step changed something."""
        target = local_target(replace(self.settings, **changed))
        without_ray = [
            candidate
            for candidate in target.steps()
            if candidate.name not in ("ray", "relay", "ray-environment")
        ]
        return {timing.name: timing.changed for timing in graph.up(without_ray, Console())}

    @property
    def url(self) -> str:
        return self.target.workspace_here.url

    @property
    def password(self) -> str:
        return (self.folder / "workspace-password").read_text()

    def login(self, password: str) -> tuple[requests.Session, requests.Response]:
        session = requests.Session()
        answer = session.post(
            f"{self.url}/login", data={"password": password}, allow_redirects=False, timeout=PATIENCE
        )
        return session, answer

    def restart(self) -> None:
        """Starts it again, and with it code-server's count of wrong passwords."""
        self.target.workspace_here.undo(lambda _: None)
        self.up()


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    folder = Path(tempfile.mkdtemp(prefix="rs-", dir="/tmp"))
    folder.rmdir()
    vsix(tmp_path_factory.mktemp("vsix") / "greeter.vsix", *DEBUGPY)
    vsix_folder = str(tmp_path_factory.getbasetemp() / "vsix0")
    started = Workspace(apart(folder, target="local", vsix_folder=vsix_folder))
    started.up()
    yield started
    graph.down(started.target.steps(), Console())
    assert processes.marked(marks.WORKSPACE, started.target.instance.mark) == []
    assert not folder.exists()


def code_server(workspace: Workspace, *arguments: str) -> str:
    """Returns what code-server's command line prints about its user's data."""
    data = workspace.folder / "workspace"
    folders = ["--user-data-dir", str(data), "--extensions-dir", str(data / "extensions")]
    command = [*workspace.target.workspace_files.code_server, *folders, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


# --- what is there -----------------------------------------------------------------------


def test_a_second_up_changes_nothing(workspace: Workspace) -> None:
    before = workspace.target.workspace_here.leftovers()
    assert not any(workspace.up().values())
    assert workspace.target.workspace_here.leftovers() == before


def test_it_has_our_extension_and_those_of_the_folder(workspace: Workspace) -> None:
    target = workspace.target
    listed = code_server(workspace, "--list-extensions", "--show-versions")
    assert {"@".join(DEBUGPY), "rayside.ray-breakpoints@0.1.0"} <= set(listed.split())
    (record,) = json.loads((target.workspace_files.installed.parent / "extensions.json").read_text())
    assert (record["id"], record["version"], record["from"]) == (*DEBUGPY, "file greeter.vsix")


def test_the_password_is_in_a_private_file_and_in_no_argument(workspace: Workspace) -> None:
    state = workspace.folder
    assert (state / "workspace-password").stat().st_mode & 0o777 == 0o600
    assert state.stat().st_mode & 0o777 == 0o700
    running = workspace.target.workspace_here.leftovers()
    assert running
    for process in running:
        assert workspace.password not in " ".join(process.cmdline())
    for log in state.glob("*.log"):
        assert workspace.password not in log.read_text()


def test_it_listens_at_its_own_port_of_loopback_and_nowhere_else(workspace: Workspace) -> None:
    names = {workspace.settings.workspace_port: "workspace_port"}
    by_program = listeners(workspace.settings.state_folder, names)
    # Node calls itself after its thread.
    assert by_program == {"MainThread": {(("127.0.0.1", "workspace_port"),)}}


def test_its_terminals_are_at_home_in_the_cluster(workspace: Workspace) -> None:
    state = workspace.folder
    (main,) = [
        process
        for process in workspace.target.workspace_here.leftovers()
        if process.ppid() == 1 or "--config" in process.cmdline()
    ][:1]
    environment = main.environ()
    assert environment["RAYSIDE_WORKSPACE"] == "1"
    assert environment["RAYSIDE_CLUSTER_FILE"] == str(state / "cluster.json")
    assert environment["RAY_AUTH_TOKEN_PATH"] == str(state / "token")
    assert environment["INVOKE_RAYSIDE_STATE_FOLDER"] == str(workspace.settings.state_folder)
    assert environment["PATH"].split(":")[0] == str(workspace.target.environment.programs)
    assert (state / "token").read_text() not in str(environment)


def test_the_cluster_file_leads_to_the_cluster_and_has_no_secret(workspace: Workspace) -> None:
    file = workspace.folder / "cluster.json"
    assert file.stat().st_mode & 0o777 == 0o600
    cluster = json.loads(file.read_text())
    assert cluster["dashboard"] == workspace.target.head.url
    assert cluster["relay"] == {"host": "127.0.0.1", "port": workspace.settings.relay_port}
    assert (cluster["shared_files"], cluster["target"]) == (True, "local")
    token = Path(cluster["token_file"]).read_text()
    assert token not in file.read_text()
    assert workspace.password not in file.read_text()


# --- who gets in -------------------------------------------------------------------------


def test_healthz_and_the_login_page_need_no_password(workspace: Workspace) -> None:
    assert requests.get(f"{workspace.url}/healthz", timeout=PATIENCE).json()["status"] in ("alive", "expired")
    page = requests.get(f"{workspace.url}/login", timeout=PATIENCE)
    assert page.status_code == 200
    assert "password" in page.text


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/?folder=/",
        "/vscode",
        "/proxy/8265/",
        "/absproxy/8265/",
        "/mint-key",
        "/logout/../vscode/",
        "/stable-x/",
    ],
)
def test_nothing_else_is_had_without_it(workspace: Workspace, path: str) -> None:
    answer = requests.get(f"{workspace.url}{path}", allow_redirects=False, timeout=PATIENCE)
    refused = answer.status_code in (401, 403, 404)
    assert refused or "login" in answer.headers.get("Location", ""), (answer.status_code, answer.text[:200])
    assert "workbench" not in answer.text


@pytest.mark.parametrize("path", ["/", "/stable-x?reconnectionToken=x", "/proxy/8265/"])
def test_a_websocket_is_refused_without_the_cookie(workspace: Workspace, path: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", workspace.settings.workspace_port, timeout=PATIENCE)
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    }
    try:
        connection.request("GET", path, headers=upgrade)
        status = connection.getresponse().status
    finally:
        connection.close()
    assert status in (401, 403), status


def test_the_password_opens_it_and_a_wrong_one_does_not(workspace: Workspace) -> None:
    session, answer = workspace.login(workspace.password)
    assert answer.status_code == 302
    assert "workbench.js" in session.get(f"{workspace.url}/", timeout=PATIENCE).text
    session, answer = workspace.login("wrong")
    assert "Incorrect password" in answer.text
    assert not session.cookies


def test_after_some_wrong_passwords_even_the_right_one_has_to_wait(workspace: Workspace) -> None:
    workspace.restart()
    are_throttled(lambda password: workspace.login(password)[1].text, workspace.password)
    workspace.restart()
    assert workspace.login(workspace.password)[1].status_code == 302


# --- life and death ----------------------------------------------------------------------


def test_one_that_was_killed_is_started_again(workspace: Workspace) -> None:
    old = workspace.target.workspace_here.leftovers()
    of_each(old, psutil.Process.kill)
    psutil.wait_procs(old, timeout=PATIENCE)
    status = workspace.target.workspace_here.check()
    assert status.condition is Condition.MISSING
    assert "has ended" in status.detail
    changed = workspace.up()
    assert [name for name, was_made in changed.items() if was_made] == ["workspace"]
    assert workspace.target.workspace_here.check().condition is Condition.READY


def test_what_its_user_set_and_installed_stays(workspace: Workspace, tmp_path: Path) -> None:
    data = workspace.folder / "workspace"
    settings = data / "User" / "settings.json"
    settings.write_text('{"mine": 1}')
    target = workspace.target
    own = vsix(tmp_path / "own.vsix", "mine.own", "0.0.1")
    code_server(workspace, "--install-extension", str(own))
    workspace.restart()
    assert json.loads(settings.read_text()) == {"mine": 1}
    listed = {
        entry["identifier"]["id"] for entry in json.loads((data / "extensions/extensions.json").read_text())
    }
    assert {"mine.own", "rayside.ray-breakpoints", DEBUGPY[0]} <= listed
    python = json.loads((data / "Machine" / "settings.json").read_text())["python.defaultInterpreterPath"]
    assert python == str(target.environment.programs / "python")


# --- its files ---------------------------------------------------------------------------


def files(workspace: Workspace, cache_folder: Path, shell: Shell) -> WorkspaceFiles:
    return WorkspaceFiles(shell, cache_folder, workspace.target.extensions)


def test_without_a_registry_it_says_how_to_do_without(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    workspace_files = files(workspace, tmp_path / "cache", Shell())
    with pytest.raises(NoNetwork) as caught:
        workspace_files.apply(lambda _: None)
    assert caught.value.hint.endswith("INVOKE_RAYSIDE_WORKSPACE=false")
    assert workspace_files.check().condition is Condition.MISSING


# --- the verb ----------------------------------------------------------------------------


def test_open_leads_to_the_files_of_the_newest_job(workspace: Workspace, tmp_path: Path) -> None:
    rayside = Rayside(workspace.settings)
    done = rayside.run("up", "--no-example")
    assert done.returncode == 0, done.stdout + done.stderr
    opened = rayside.json("open")
    assert opened == {"url": f"{workspace.url}/?folder={quote(str(FOLDER))}", "folder": str(FOLDER)}
    assert f"Workspace   {opened['url']}\n            password {workspace.password}\n" in done.stdout
    users_folder = tmp_path / "my code"
    users_folder.mkdir()
    (users_folder / "x.py").write_text("print('x')\n")
    rayside.json("submit", "--working-dir", str(users_folder), "--entrypoint", "python x.py")
    opened = rayside.json("open")
    assert opened["folder"] == str(users_folder)
    assert opened["url"].endswith("/my%20code")
    printed = rayside.run("open").stdout
    assert printed == f"{opened['url']}\npassword {workspace.password}\n"
    workspace.target.workspace_here.undo(lambda _: None)
    error = rayside.json("open", code=4)["error"]
    assert error["id"] == "not-running"
    assert "the browser workspace does not run: port" in error["message"]


def test_vsix_makes_a_file_that_an_editor_installs(tmp_path: Path) -> None:
    output = tmp_path / "out put" / "ours.vsix"

    def made(*options: str) -> subprocess.CompletedProcess[str]:
        command = [str(ROOT / "invokew"), "vsix", *options]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)

    refused = made("--output", str(output), "--json")
    assert (refused.returncode, json.loads(refused.stdout)["error"]["id"]) == (USAGE, "invalid-argument")
    output.parent.mkdir()
    done = made("--output", str(output), "--json")
    version = json.loads((OWN / "package.json").read_text())["version"]
    assert json.loads(done.stdout) == {"file": str(output), "version": version}, done.stderr
    assert (read(output).id, read(output).platform) == ("rayside.ray-breakpoints", UNIVERSAL)
    assert list(output.parent.iterdir()) == [output]
    assert f"code --install-extension {tmp_path / 'ray-breakpoints.vsix'}\n" in made().stdout
    # The option of code-server that does it is the one of `code`.
    installed, files = tmp_path / "installed", local_target().workspace_files
    install: list[str | Path] = [SOURCE / "install-extensions", files.folder, installed, output]
    subprocess.run(install, capture_output=True, timeout=60, check=True)
    assert [folder.name for folder in installed.glob("rayside.*")] == [f"rayside.ray-breakpoints-{version}"]
