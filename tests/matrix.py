"""Compatibility matrix of the hook of `submit --debug`, Ray by Python; not a test, as it takes long.

`python -m tests.matrix FOLDER [RAY:PYTHON ...]` makes an environment for each cell below FOLDER
(with uv, which looks for the Pythons on PATH), starts a Ray cluster there, submits a job, and checks that
breakpoints in a task and in the driver stop.
`RAY:PYTHON:bare` has no debugpy in the environment: the job installs it with pip.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil

from bootstrap.errors import RayDied
from bootstrap.settings import DEBUGPY_VERSION
from rayside.dap.client import Client
from rayside.errors import NotRunning
from rayside.ray import jobs
from rayside.ray.debug import Debug
from rayside.ray.state import Dashboard
from rayside.worker.handshake import proof

CELLS = [
    f"{ray}:{python}"
    for ray in ("2.46.0", "2.49.2", "2.52.1", "2.55.1", "2.60.0")
    for python in ("3.10", "3.11", "3.12")
]
PATIENCE = 240.0  # seconds
PROGRAM = """\
import ray

@ray.remote
def work(n):
    return n + 1

ray.init()
assert ray.get(work.remote(1)) == 2
done = True
"""
WORK, DRIVER = 5, 9
MARK = "RAYSIDE_MATRIX"


@dataclass(frozen=True)
class Cell:
    """Running Ray cluster."""

    folder: Path
    programs: Path
    dashboard: Dashboard
    environment: dict[str, str]


@contextlib.contextmanager
def running(ray: str, python: str, bare: bool, below: Path, port: int) -> Iterator[Cell]:
    """Runs a Ray cluster of that version in the context; raises CalledProcessError if there is no wheel."""
    venv = below / f"{ray}-{python}{'-bare' if bare else ''}"
    if not (venv / "complete").exists():
        subprocess.run(
            ["uv", "venv", "--quiet", "--clear", "--seed", "--no-python-downloads", "--python", python, venv],
            check=True,
        )
        packages = [f"ray[default]=={ray}", *([] if bare else [f"debugpy=={DEBUGPY_VERSION}"])]
        install: list[str | Path] = ["uv", "pip", "install", "--quiet", "--python", venv / "bin" / "python"]
        # Older versions of Ray import pkg_resources.
        subprocess.run([*install, "--only-binary", "ray", "setuptools<81", *packages], check=True)
        (venv / "complete").touch()
    folder = Path(tempfile.mkdtemp(prefix="m-", dir="/tmp"))
    mark = secrets.token_hex(8)
    # Before 2.52 neither Ray nor its debuggers have tokens.
    knows = tuple(map(int, ray.split("."))) >= (2, 52)
    token = secrets.token_urlsafe(16) if knows else ""
    environment = {
        **os.environ,
        "PATH": f"{venv / 'bin'}:{os.environ['PATH']}",
        **({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token} if knows else {}),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_DEBUG": "1",
        "SPT_NOENV": "1",
        MARK: mark,
    }
    options = (
        "start --head --block --disable-usage-stats --node-ip-address 127.0.0.2 --port 0 --num-cpus 2 "
        f"--dashboard-host 127.0.0.1 --ray-client-server-port {port + 100} --dashboard-agent-listen-port 0 "
        f"--min-worker-port 0 --max-worker-port 0 --dashboard-port {port} --temp-dir {folder / 'r'}"
    )
    command = [str(venv / "bin" / "ray"), *options.split()]
    with (folder / "log").open("wb") as log:
        started = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        dashboard = Dashboard(f"http://127.0.0.1:{port}", token)
        deadline = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(NotRunning):
                if dashboard.live_nodes():
                    break
            if time.monotonic() > deadline or started.poll() is not None:
                lines = (folder / "log").read_text().strip().splitlines() or [""]
                raise RayDied(f"it did not start: {lines[-1]}", hint="run it on an idle machine")
            time.sleep(0.5)
        yield Cell(folder, venv / "bin", dashboard, environment)
    finally:
        end(mark)
        shutil.rmtree(folder, ignore_errors=True)


def end(mark: str) -> None:
    """Kills every process of that Ray cluster, and no other."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK) == mark:
                process.kill()


async def stops(cell: Cell, bare: bool) -> str:
    """Returns `yes`, or what went wrong."""
    code = cell.folder / "code"
    code.mkdir()
    (code / "program.py").write_text(PROGRAM)
    debug = Debug(attach_timeout=PATIENCE, pip_debugpy=bare)
    job = jobs.prepare(working_dir=str(code), py_modules=[], entrypoint="python program.py", debug=debug)
    name = jobs.new_submission_id(job.entrypoint)
    jobs.submit(cell.dashboard, job, name)
    package = cell.dashboard.job(name).runtime_env["working_dir"].rsplit("/", 1)[1].removesuffix(".zip")
    session = (cell.folder / "r" / "session_latest").resolve()
    program = session / "runtime_resources" / "working_dir_files" / package / "program.py"
    prove = partial(proof, cell.environment.get("RAY_AUTH_TOKEN", "").encode())
    clients: dict[str, Client] = {}
    stopped: set[int] = set()
    deadline = time.monotonic() + 2 * PATIENCE
    while not cell.dashboard.job(name).ended:
        if time.monotonic() > deadline:
            return f"stopped in {sorted(stopped)}, then nothing"
        for worker in cell.dashboard.debuggable():
            if worker.worker_id not in clients:
                client = clients[worker.worker_id] = await Client.connect(worker.node_ip, worker.port)
                lines = [{"line": WORK}, {"line": DRIVER}]
                await client.attach(breakpoints={str(program): lines}, prove=prove)
        for client in clients.values():
            while not client.events.empty():
                event = client.events.get_nowait()
                if event and event["event"] == "stopped":
                    thread = {"threadId": event["body"]["threadId"]}
                    frame = (await client.request("stackTrace", thread))["stackFrames"][0]
                    stopped.add(frame["line"])
                    await client.request("continue", thread)
        await asyncio.sleep(0.1)
    for client in clients.values():
        await client.disconnect()
    status = cell.dashboard.job(name).status
    if (stopped, status) == ({WORK, DRIVER}, "SUCCEEDED"):
        return "yes"
    output = f"{cell.dashboard.output(name)}\n{cell.dashboard.job(name).message}".split()
    return f"{status}, stopped in {sorted(stopped)}: {' '.join(output[-40:])}"


def main(arguments: list[str]) -> None:
    below = Path(arguments[0]).absolute()
    below.mkdir(parents=True, exist_ok=True)
    for number, cell in enumerate(arguments[1:] or [*CELLS, "2.60.0:3.11:bare"]):
        ray, python, *bare = cell.split(":")
        began = time.monotonic()
        try:
            with running(ray, python, bool(bare), below, 18700 + number) as running_cell:
                answer = asyncio.run(stops(running_cell, bool(bare)))
        except subprocess.CalledProcessError:
            answer = "not run: no wheel, or it can't be installed"
        except Exception as error:  # The other cells still run.
            answer = f"failed: {type(error).__name__}: {str(error)[:300]}"
        print(f"{cell:20} {answer} ({time.monotonic() - began:.0f} s)", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
