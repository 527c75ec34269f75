"""Existing Ray cluster for tests: `ray start` in an environment without debugpy and without Rayside."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil

from bootstrap.settings import FIRST_RAY_WITH_TOKENS, OLDEST_RAY, RAY_VERSION, ROOT, Settings
from bootstrap.steps.ray_environment import LOCK_FILE, START_FILE, RayEnvironment
from rayside.console import Console
from rayside.errors import NotRunning
from rayside.ray.state import Dashboard
from rayside.system import processes
from rayside.system.shell import Shell
from rayside.waiting import until
from tests.integration.conftest import free_ports

# Variable in the environment of each process of the cluster.
_MARK = "THEIR_RAY"
# Each node has a separate folder at the same path, as on separate machines: in a shared folder each node
# would remove files that the other has unpacked for a job.
_APART = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" "$1" && shift && exec "$@"']
HEAD, WORKER = "127.0.0.3", "127.0.0.4"
_LOCK_FILES = {
    OLDEST_RAY: ROOT / "requirements" / "test-oldest-ray.txt",
    FIRST_RAY_WITH_TOKENS: ROOT / "requirements" / "test-ray-with-tokens.txt",
    RAY_VERSION: LOCK_FILE,
}

# A job of two tasks, one on each node.
PROGRAM = """\
import ray
ray.init()
@ray.remote(scheduling_strategy="SPREAD")
def half(n):
    result = 10 / n
    return result
print([ray.get(each) for each in [half.remote(n) for n in (1, 2)]])
"""


@dataclass(frozen=True)
class TheirRay:
    """Head and one more node, each at a different loopback address."""

    home: Path
    url: str

    def processes(self) -> list[psutil.Process]:
        return processes.marked(_MARK, str(self.home))


@contextmanager
def their_ray(
    *, token: str = "", version: str = RAY_VERSION, with_debugpy: bool = False
) -> Iterator[TheirRay]:
    """Runs a cluster in the context; it requires `token` if that is given. Installs each `version` once."""
    home = Path(tempfile.mkdtemp(prefix="tr-", dir="/tmp"))
    environment = RayEnvironment(Shell(), Settings().cache_folder, _LOCK_FILES[version], version)
    environment.apply(Console().event)
    # Hard links: they take a second and no disk space.
    subprocess.run(["cp", "-al", environment.folder, home / "env"], check=True)
    packages = next((home / "env").glob("lib/python3*/site-packages"))
    debugger = [] if with_debugpy else [*packages.glob("debugpy*"), *packages.glob("bytecode*")]
    for path in [*debugger, packages / START_FILE.name]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    dashboard, client, gcs = free_ports(3)
    ray = TheirRay(home, f"http://127.0.0.1:{dashboard}")
    try:
        _start(ray, token, "--head", "--port", str(gcs), "--dashboard-host", "127.0.0.1",
               "--dashboard-port", str(dashboard), "--ray-client-server-port", str(client),
               "--node-ip-address", HEAD, "--temp-dir", str(home / "ray"))  # fmt: skip
        _start(ray, token, "--address", f"{HEAD}:{gcs}", "--node-ip-address", WORKER, within=_APART)
        # Older versions of Ray do not wait for their dashboard.
        assert until(partial(_answers, Dashboard(ray.url, token)), bool, 120), "no dashboard"
        yield ray
    finally:
        processes.end(ray.processes, patience=3)
        shutil.rmtree(home, ignore_errors=True)


def _answers(dashboard: Dashboard) -> bool:
    """Returns whether the dashboard answers and lists both nodes."""
    with suppress(NotRunning):
        return dashboard.live_nodes() == 2
    return False


def _start(ray: TheirRay, token: str, *options: str, within: Sequence[str] = ()) -> None:
    (ray.home / "token").write_text(token)
    authentication = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(ray.home / "token")}
    python = ray.home / "env" / "bin" / "python"
    command = [python, "-m", "ray.scripts.scripts", "start", *options, "--num-cpus", "1"]
    folders = [ray.home / "other", ray.home / "ray"] if within else []
    for folder in folders:
        folder.mkdir(exist_ok=True)
    free = ["--dashboard-agent-listen-port", "0", "--min-worker-port", "0", "--max-worker-port", "0"]
    done = subprocess.run(
        [str(word) for word in [*within, *folders, *command, "--disable-usage-stats", *free]],
        env={
            "HOME": str(ray.home),
            # Ray leaves folders there; another test searches the system's temporary folder for them.
            "TMPDIR": str(ray.home),
            "PATH": f"{python.parent}{os.pathsep}{os.defpath}",
            # A loaded machine takes longer than the minute that Ray gives its dashboard, and its raylet.
            "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "150",
            "RAY_raylet_start_wait_time_s": "150",
            "SPT_NOENV": "1",  # Ray's process titles must not overwrite the mark.
            _MARK: str(ray.home),
            **(authentication if token else {}),
        },
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
