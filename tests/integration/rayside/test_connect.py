"""Tests `rayside connect` and the commands after it: the wheel alone, without Ray, on a Ray of others."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from bootstrap.settings import ROOT
from rayside.ray.state import Dashboard
from rayside.system import marks, processes
from rayside.waiting import until
from tests.integration.conftest import free_ports
from tests.integration.sshd import HOST, sshd
from tests.integration.their_ray import PROGRAM, TheirRay, their_ray
from tests.patience import PATIENCE

TOKEN = "their-token-" + "x" * 20


@dataclass
class Alone:
    """The program `rayside` of an environment that has the wheel and nothing else, and where it works."""

    program: Path
    folder: Path
    ports: tuple[int, int]
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def state(self) -> Path:
        return self.folder / "state" / "rayside"

    def run(self, *words: str, timeout: float = PATIENCE) -> subprocess.CompletedProcess[str]:
        relay, dashboard = self.ports
        environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.folder),
            "INVOKE_RAYSIDE_STATE_FOLDER": str(self.folder / "state"),
            "INVOKE_RAYSIDE_RELAY_PORT": str(relay),
            "INVOKE_RAYSIDE_DASHBOARD_PORT": str(dashboard),
            **self.environment,
        }
        command: list[str | Path] = [self.program, *words]
        return subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=timeout
        )

    def json(self, *words: str) -> Any:
        done = self.run(*words, "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="session")
def program(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    venv = tmp_path_factory.mktemp("alone")
    uv: tuple[str | Path, ...] = (sys.executable, "-m", "uv")
    subprocess.run([*uv, "venv", "--quiet", "--clear", "--python", sys.executable, venv], check=True)
    install = [*uv, "pip", "install", "--quiet", "--python", venv / "bin" / "python"]
    pins = ROOT / "requirements" / "rayside.txt"
    subprocess.run([*install, "--constraint", pins, wheel], check=True, timeout=PATIENCE)
    return venv / "bin" / "rayside"


@pytest.fixture
def alone(program: Path, tmp_path: Path) -> Alone:
    relay, dashboard = free_ports(2)
    return Alone(program, tmp_path, (relay, dashboard))


def actors(theirs: TheirRay) -> Sequence[Mapping[str, Any]]:
    return Dashboard(theirs.url, TOKEN).table("actors", ("state", "DEAD"))


def both_stop(alone: Alone) -> None:
    """Has PROGRAM stop in unmodified code in each of its two tasks, and looks at what can be seen then."""
    source = alone.folder / "main.py"
    source.write_text(PROGRAM)
    submitted = alone.json("submit", "--debug", "--entrypoint", "python main.py")
    options = ["--timeout", "200", "--break", f"{source}:6", "--evaluate", "n"]
    document = alone.json("debug", *options)
    stops = sorted((stop["evaluated"]["n"], stop["line"], stop["file"]) for stop in document["stopped"])
    assert stops == [("1", 6, str(source)), ("2", 6, str(source))]
    assert document["job"] == {"submission_id": submitted["submission_id"], "status": "SUCCEEDED"}
    assert "[10.0, 5.0]" in alone.run("logs").stdout
    assert alone.json("breakpoints") == []
    done = alone.run("compare", "n")
    assert (done.returncode, "error[not-running]" in done.stderr) == (4, True), done.stderr
    assert "rayside submit --debug starts a job" in done.stderr
    assert "./invokew" not in done.stdout + done.stderr


def by_ssh(alone: Alone, theirs: TheirRay, options: Sequence[str]) -> None:
    """Debugs through the head alone; the relay is an actor there, and goes with `disconnect`."""
    done = alone.run("connect", "--ssh", HOST, *options)
    assert (done.returncode, "error[ssh-failed]" in done.stderr) == (4, True), done.stderr
    assert not alone.state.exists()
    with sshd() as server:
        alone.environment.update(server.environment)
        done = alone.run("connect", "--ssh", HOST, *options, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        before, _, _ = done.stderr.partition("debug relay, as an actor")
        assert "as a detached actor" in before
        assert "A job uploads its working_dir and py_modules to that Ray" in before
        (actor,) = actors(theirs)
        assert (actor["name"].startswith("rayside-relay-"), actor["ray_namespace"]) == (True, "rayside")
        both_stop(alone)
        # What was broken off comes again by itself.
        for mark in (marks.FORWARDS, marks.RELAY):
            (connection,) = until(partial(_ssh, mark, alone.state), bool, 60)
            connection.terminate()
        assert until(lambda: alone.json("status")["ready"], bool, 60)
        assert alone.run("disconnect").returncode == 0
        assert actors(theirs) == []
        # A cluster that has gone is no error.
        assert alone.run("connect", "--ssh", HOST, *options, timeout=300).returncode == 0


def _ssh(mark: str, folder: Path) -> list[psutil.Process]:
    return [process for process in processes.marked(mark, str(folder)) if process.name() == "ssh"]


@pytest.mark.gate
@pytest.mark.timeout(900)
def test_an_existing_ray_is_debugged_by_the_wheel_alone_and_nothing_is_left(alone: Alone) -> None:
    with their_ray(token=TOKEN) as theirs:
        done = alone.run("connect", "--address", theirs.url)
        assert (done.returncode, "error[credentials-refused]" in done.stderr) == (4, True), done.stderr
        # What can't work leaves nothing behind.
        assert not alone.state.exists()
        token = alone.folder / "their-token"
        token.write_text(TOKEN)
        # The project says which cluster is meant.
        settings = f'[tool.rayside]\naddress = "{theirs.url}"\n'
        (alone.folder / "pyproject.toml").write_text(settings)
        done = alone.run("connect")
        assert (done.returncode, "--token-file FILE" in done.stderr) == (4, True), done.stderr
        connected = alone.json("connect", "--token-file", str(token))
        assert (connected["target"], connected["ready"]) == ("cluster", True)
        assert connected["urls"]["dashboard"] == theirs.url
        done = alone.run("connect")
        assert (done.returncode, "nothing is put there" in done.stderr) == (0, True), done.stderr
        kept = alone.state / "token"
        assert (kept.read_text(), kept.stat().st_mode & 0o777) == (TOKEN, 0o600)
        both_stop(alone)
        assert alone.json("status")["ready"]
        assert alone.run("disconnect").returncode == 0
        assert not alone.state.exists()
        assert alone.run("disconnect").returncode == 0
        done = alone.run("debug")
        assert (done.returncode, "rayside connect --address" in done.stderr) == (4, True), done.stderr

        (alone.folder / "pyproject.toml").unlink()
        address = ["--address", theirs.url.replace("localhost", "127.0.0.1"), "--token-file", str(token)]
        by_ssh(alone, theirs, address)
    assert alone.run("disconnect").returncode == 0
    assert not alone.state.exists()
