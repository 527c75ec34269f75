"""Tests the cached environment, built by real uv from a small lock file: once, alone, and never half."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bootstrap.errors import BadChecksum, NoNetwork
from bootstrap.settings import ROOT
from bootstrap.steps.ray_environment import RayEnvironment
from rayside.steps.step import Condition
from rayside.system.shell import Shell

SMALL = "websocket-client"


@pytest.fixture
def lock_file(tmp_path: Path) -> Path:
    """Provides one small package, as the real lock file pins and hashes it."""
    text = (ROOT / "requirements" / "rayside.txt").read_text()
    start = text.index(f"{SMALL}==")
    file = tmp_path / "small.txt"
    file.write_text(text[start : text.index("    # via", start)])
    return file


@pytest.fixture
def environment(tmp_path: Path, lock_file: Path) -> RayEnvironment:
    return RayEnvironment(Shell(), tmp_path / "a cache", lock_file)


def silent(_: str) -> None:
    pass


def test_it_is_made_once_and_is_named_by_what_it_is_made_of(environment: RayEnvironment) -> None:
    assert environment.check().condition is Condition.MISSING
    environment.apply(silent)
    assert environment.check().condition is Condition.READY
    # A job's runtime_env may have a `pip`, for which Ray starts the one of this environment.
    subprocess.run([environment.programs / "python", "-c", "import websocket, pip"], check=True)
    environment.lock_file.write_text(environment.lock_file.read_text() + "# other\n")
    # It is named once; another command sees what has changed.
    assert replace(environment).check().condition is Condition.MISSING


def test_one_that_was_killed_half_way_is_made_anew_and_its_builder_ended(
    environment: RayEnvironment,
) -> None:
    build = (
        "import sys; from pathlib import Path; from rayside.system.shell import Shell;"
        "from bootstrap.steps.ray_environment import RayEnvironment;"
        "RayEnvironment(Shell(), Path(sys.argv[1]), Path(sys.argv[2])).apply(lambda t: print(t, flush=True))"
    )
    builder = subprocess.Popen(
        [sys.executable, "-c", build, str(environment.cache_folder), str(environment.lock_file)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    with builder:
        assert builder.stdout
        for line in builder.stdout:
            if line.startswith("downloading"):
                break
        builder.send_signal(signal.SIGKILL)
    assert environment.check().condition is Condition.MISSING
    environment.apply(silent)
    assert environment.check().condition is Condition.READY
    subprocess.run([environment.programs / "python", "-c", "import websocket"], check=True)


def test_a_download_with_another_hash_is_refused(environment: RayEnvironment) -> None:
    text = environment.lock_file.read_text()
    broken = "\n".join(
        line[: line.index("sha256:") + 7] + "0" * 64 + line[line.index("sha256:") + 71 :]
        if "sha256:" in line
        else line
        for line in text.splitlines()
    )
    environment.lock_file.write_text(broken)
    with pytest.raises(BadChecksum, match=SMALL):
        environment.apply(silent)
    assert environment.check().condition is Condition.MISSING


def test_without_a_network_it_says_so(environment: RayEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    with pytest.raises(NoNetwork):
        environment.apply(silent)
    assert environment.check().condition is Condition.MISSING
