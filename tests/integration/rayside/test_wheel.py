"""Tests the debugger as a package alone: its wheel, in an environment that has Ray and nothing else."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from bootstrap.settings import ROOT
from rayside import __version__, versions
from rayside.client.commands import Place
from rayside.client.scripted import run_sync
from rayside.client.session import AttachOptions, NoJob
from rayside.dap.client import Client
from rayside.relay.config import Config
from tests.integration.conftest import free_ports
from tests.integration.relay_port import answers, until
from tests.patience import PATIENCE

PROGRAM = """\
import ray
@ray.remote
def half(n):
    result = n / 2
    return result
if __name__ == "__main__":
    ray.init(**{options!r})
    print("halves", ray.get([half.remote(n) for n in (4, 6)]))
"""


def test_the_wheel_is_of_pure_python_and_has_the_package_whole(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    files = (ROOT / "rayside").rglob("*.py")
    assert names == {"rayside/LICENSE", *(file.relative_to(ROOT).as_posix() for file in files)}


def test_it_asks_for_the_debugger_that_it_is_made_for() -> None:
    pinned = re.findall(
        r'^    "([a-z]+==.+)",$', (ROOT / "rayside" / "pyproject.toml").read_text(), re.MULTILINE
    )
    assert pinned == [f"bytecode=={versions.BYTECODE}", f"debugpy=={versions.DEBUGPY}"]


def test_a_breakpoint_of_a_task_stops_with_ray_and_the_wheel_alone(python: Path, tmp_path: Path) -> None:
    dashboard, port = free_ports(2)
    token = secrets.token_urlsafe()
    (tmp_path / "token").write_text(token)
    config = Config("127.0.0.1", port, f"http://127.0.0.1:{dashboard}", tmp_path / "token", shared_files=True)
    (tmp_path / "relay.json").write_text(config.document())
    program = tmp_path / "halves.py"
    environment = {
        "PATH": f"{python.parent}{os.pathsep}{os.defpath}",
        "HOME": str(tmp_path),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": token,
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    with tempfile.TemporaryDirectory(prefix="w-", dir="/tmp") as ray, contextlib.ExitStack() as running:
        options = {"include_dashboard": True, "dashboard_port": dashboard, "num_cpus": 2, "_temp_dir": ray}
        program.write_text(PROGRAM.format(options=options))
        relay: list[str | Path] = [python, "-m", "rayside.relay", "--config", tmp_path / "relay.json"]
        running.enter_context(started(relay, tmp_path, environment))
        driver = running.enter_context(
            started([python, "-m", "rayside.worker", program], tmp_path, environment)
        )
        until(lambda: answers(port))
        document = run_sync(
            AttachOptions(
                partial(Client.connect, "127.0.0.1", port), token, breakpoints=[Place(str(program), 5, None)]
            ),
            NoJob(),
            evaluate=["result"],
            timeout=30,
            on_event=print,
        )
        output, _ = driver.communicate(timeout=60)
    values = sorted(stop["evaluated"]["result"] for stop in document["stopped"])
    assert values == ["2.0", "3.0"], output
    assert "halves [2.0, 3.0]" in output


@contextlib.contextmanager
def started(
    command: list[str | Path], folder: Path, environment: dict[str, str]
) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=folder, env=environment, text=True, stdout=pipe, stderr=subprocess.STDOUT
    ) as process:
        try:
            yield process
        finally:
            process.kill()


# --- the devcontainer Feature; tests/e2e/test_feature.py has it in containers --------------------------


def feature(*programs: Path, cwd: Path, **options: str) -> subprocess.CompletedProcess[str]:
    """Runs its script, as if for an image that has only these folders of programs beside the system's."""
    path = os.pathsep.join(map(str, programs))
    script = ROOT / "features" / "rayside" / "install.sh"
    environment = {**os.environ, "PATH": path, **options}
    return subprocess.run(
        ["/bin/sh", script], cwd=cwd, env=environment, capture_output=True, text=True, timeout=PATIENCE
    )


def test_the_feature_installs_it_for_the_first_python_of_the_path(wheel: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "v"], check=True, timeout=PATIENCE)
    done = feature(
        tmp_path / "v" / "bin", Path("/usr/bin"), Path("/bin"), cwd=wheel.parent, SOURCE=wheel.name
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith(f"rayside {__version__}\n")
    assert (tmp_path / "v" / "bin" / "rayside").exists()


def test_the_feature_says_what_is_lacking(tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "realpath").symlink_to("/usr/bin/realpath")
    no_wheel = feature(programs, cwd=tmp_path, SOURCE="./none.whl").stderr
    assert no_wheel == "error: there is no wheel ./none.whl\n hint: correct the option source\n"
    assert "there is no Python on the PATH\n hint: add " in feature(programs, cwd=tmp_path).stderr
    (programs / "python3").write_text("#!/bin/sh\nexit 1\n")
    (programs / "python3").chmod(0o755)
    assert "is older than Python 3.10\n hint: add " in feature(programs, cwd=tmp_path).stderr
