"""Fixtures of a real Ray cluster that only the tests use, independent of others on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

from bootstrap.settings import ROOT, Settings
from bootstrap.targets.local import Local
from rayside.console import Console
from rayside.dap.channel import Channel
from rayside.dap.client import Client
from rayside.ray.state import Dashboard
from rayside.relay import configuration, fan_out
from rayside.settings import environment_name
from rayside.waiting import until
from tests import npm
from tests.integration.frozen import noticed, stacks
from tests.patience import PATIENCE
from tests.targets import local_target

Seen = TypeVar("Seen")

# On a machine that is busy with other tests, a process may answer later than users have to wait.
for request in (Channel.request, Channel.answer, Client.set_breakpoints):
    (request.__kwdefaults__ or {})["timeout"] = PATIENCE


@dataclass(frozen=True)
class Rayside:
    """Runs verbs as a user would, with its own settings."""

    settings: Settings
    environment_too: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            **{environment_name(name): str(value) for name, value in vars(self.settings).items()},
            **self.environment_too,
        }

    def run(
        self,
        *arguments: str,
        cwd: Path = ROOT,
        env: Mapping[str, str] | None = None,
        timeout: float = 180,
        typed: str = "",
    ) -> subprocess.CompletedProcess[str]:
        """Runs one verb to its end, without a terminal; its input is `typed`."""
        with noticed(self._stacks) as (descriptor, lines):
            done = subprocess.run(
                [str(ROOT / "invokew"), *arguments],
                cwd=cwd,
                env={**self.environment, **(env or {})},
                input=typed,
                stdout=subprocess.PIPE,
                stderr=descriptor,
                text=True,
                timeout=timeout,
                check=False,
            )
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout, "".join(lines))

    def _stacks(self) -> str:
        return stacks(self.processes(), self.target.environment.programs)

    def json(self, *arguments: str, code: int = 0, **how: Any) -> Any:
        """Returns the document that a verb prints with --json, which must be its whole output."""
        done = self.run(*arguments, "--json", **how)
        assert done.returncode == code, done.stdout + done.stderr
        return json.loads(done.stdout)

    def settled_status(self) -> Any:
        """Returns the document of `status` when all is ready, or after two minutes.

        One late answer, on a busy machine, is no fault.
        """
        return until(lambda: self.json("status"), lambda document: bool(document["ready"]), 120)

    def is_ready(self) -> bool:
        """Returns whether `status` reports within two minutes that all is ready."""
        return bool(self.settled_status()["ready"])

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Starts one verb, whose output the caller reads."""
        return subprocess.Popen(
            [str(ROOT / "invokew"), *arguments],
            cwd=ROOT,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    @property
    def folder(self) -> Path:
        """Returns the folder of the cluster's files."""
        return self.settings.state_folder / self.settings.name

    @property
    def target(self) -> Local:
        return local_target(self.settings)

    def processes(self) -> list[psutil.Process]:
        """Returns all processes of this cluster."""
        return self.target.head.leftovers()

    def named(self, name: str) -> list[psutil.Process]:
        """Returns the processes of this cluster that have this name."""
        return [process for process, its in of_each(self.processes(), psutil.Process.name) if its == name]


def of_each(
    processes: Sequence[psutil.Process], what: Callable[[psutil.Process], Seen]
) -> list[tuple[psutil.Process, Seen]]:
    """Returns each process with the result of `what`, without processes that end meanwhile."""
    answers = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            answers.append((process, what(process)))
    return answers


def stop_jobs(dashboard: Dashboard) -> None:
    """Ends every job: its waiting tasks would stop in the next test's debuggers, too."""
    for name in [job.submission_id for job in dashboard.jobs() if not job.ended]:
        dashboard.stop(name)
        assert until(partial(dashboard.job, name), lambda job: job.ended, 120).ended, name


_ports_given: set[int] = set()


def free_ports(count: int = 2) -> list[int]:
    """Returns that many free ports of the loopback address, outside the range of client ports.

    A cluster uses its ports long after this call, so each lane has its own ports, and returns none twice.
    They are chosen at random, as another run of the tests may be in progress.
    """
    lane = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    lanes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    left = [port for port in range(18265 + lane, 32768, lanes) if port not in _ports_given]
    ports: list[int] = []
    for port in random.sample(left, len(left)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            ports.append(port)
        if len(ports) == count:
            _ports_given.update(ports)
            return ports
    raise AssertionError("no port is free")


# Timeout in seconds for Ray to start in parallel to other lanes' tests.
_RAY_PATIENCE = 400.0


def apart(state_folder: Path, **more: Any) -> Settings:
    """Returns settings of a cluster that is independent of others on this machine, with `more`."""
    names = ("dashboard_port", "ray_client_port", "relay_port", "workspace_port")
    ports: dict[str, Any] = dict(zip(names, free_ports(len(names)), strict=True))
    # Three lanes on two CPUs: no test is about the time in which Ray starts.
    return Settings(state_folder=state_folder, **{**ports, "ray_patience": _RAY_PATIENCE, **more})


@pytest.fixture(scope="module")
def rayside() -> Iterator[Rayside]:
    """Provides a cluster that is not up yet; after the module, removes everything that the tests made."""
    folder = Path(tempfile.mkdtemp(prefix="rs-", dir="/tmp"))
    folder.rmdir()
    # Tests of the workspace make their own cluster.
    started = Rayside(apart(folder, target="local", workspace=False))
    yield started
    done = started.run("down")
    shutil.rmtree(folder, ignore_errors=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert started.processes() == []


@pytest.fixture(scope="session", autouse=True)
def ray_environment() -> None:
    """Makes Ray's environment, in the cache that all tests share."""
    local_target().environment.apply(Console().event)


@pytest.fixture(scope="session")
def node() -> Path:
    """Returns the folder of `node` and `npm`."""
    return npm.programs()


@pytest.fixture
def answers_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the relay answer only after all debuggees: otherwise later answers come as events."""
    for module in (fan_out, configuration):
        monkeypatch.setattr(module, "FAN_OUT", 30.0)


@pytest.fixture
def user() -> Iterator[Rayside]:
    """Provides a user without a cluster; checks that nothing is left afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="rs-", dir="/tmp"))
    folder.rmdir()
    rayside = Rayside(apart(folder, workspace=False))
    yield rayside
    done = rayside.run("down")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not folder.exists()
    shutil.rmtree(folder, ignore_errors=True)
