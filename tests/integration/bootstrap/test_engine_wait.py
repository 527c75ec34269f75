"""Tests the wait for a Docker engine that is still starting, and what happens when none comes."""

from __future__ import annotations

import json
import os
import re
import shutil
import socketserver
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from bootstrap.instance import configured
from bootstrap.settings import ROOT
from rayside.own_folder import make_own
from tests.integration.conftest import Rayside

WAIT = """
from bootstrap import docker_engine
print(docker_engine.wait(60, lambda text: print(text, flush=True)))
"""
# All that a sign of life takes, as https://docs.docker.com/reference/api/engine/ has it.
SCRIPT = {
    "/version": json.dumps({"ApiVersion": "1.41", "Version": "20.10.24"}),
    "/_ping": "OK",
}


@pytest.fixture
def folder() -> Iterator[Path]:
    """Provides a folder with a short path, for a socket."""
    short = Path(tempfile.mkdtemp(prefix="rs-", dir="/tmp"))
    yield short
    shutil.rmtree(short)


@contextmanager
def scripted_engine(file: Path, unscripted: list[str]) -> Iterator[None]:
    """Plays an engine at that socket; `unscripted` gets what was requested and is not in the script."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = re.sub(r"^/v\d+\.\d+", "", self.path)
            if path not in SCRIPT:
                unscripted.append(path)
            body = SCRIPT.get(path, "").encode()
            self.send_response(200 if path in SCRIPT else 501)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def address_string(self) -> str:
            return "a client"

        def log_message(self, *arguments: Any) -> None:
            pass

    with socketserver.ThreadingUnixStreamServer(str(file), Handler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield
        server.shutdown()
        serving.join()


def test_an_engine_that_starts_is_waited_for_and_that_is_said(folder: Path) -> None:
    environment = {**os.environ, "DOCKER_HOST": f"unix://{folder}/engine.sock"}
    unscripted: list[str] = []
    command = [sys.executable, "-c", WAIT]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as waiting:
        assert waiting.stdout
        assert waiting.stdout.readline() == "Waiting up to 60 s for the Docker engine\n"
        with scripted_engine(folder / "engine.sock", unscripted):
            assert waiting.stdout.read() == "The Docker engine answers\nTrue\n"
            # One that answers at once is nothing to speak of.
            done = subprocess.run(
                command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=60
            )
    assert done.stdout == "True\n"
    assert unscripted == []


def test_without_an_engine_up_says_so_and_goes_on_with_local(rayside: Rayside, folder: Path) -> None:
    nowhere = {"DOCKER_HOST": f"unix://{folder}/engine.sock"}
    done = rayside.run("up", "--no-example", "--target", "auto", "--wait-for-engine", "3", env=nowhere)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stderr.splitlines()
    assert lines[:2] == [
        "Waiting up to 3 s for the Docker engine",
        "No Docker engine answered within 3 s",
    ]
    assert lines[2].startswith(
        f"Target local (auto: the Docker engine at DOCKER_HOST={nowhere['DOCKER_HOST']} does"
    )
    # What is up needs no engine: nothing is waited for.
    done = rayside.run("up", "--no-example", "--target", "auto", "--wait-for-engine", "60", env=nowhere)
    assert "Nothing to change" in done.stdout
    assert "Waiting" not in done.stderr


def test_a_kind_cluster_that_was_made_is_not_replaced_by_local(rayside: Rayside, folder: Path) -> None:
    assert rayside.run("down").returncode == 0
    state = folder / "s"
    instance = configured(replace(rayside.settings, state_folder=state), "kind")
    make_own(instance.folder)
    instance.record.write_text(instance.document())
    nowhere = {"DOCKER_HOST": f"unix://{folder}/engine.sock", "INVOKE_RAYSIDE_STATE_FOLDER": str(state)}
    arguments = ("--target", "auto", "--source", "packages", "--wait-for-engine", "1")
    done = rayside.run("up", *arguments, env=nowhere)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "Target kind (auto: it was made so)" in done.stderr
    assert "error[engine-not-running]" in done.stderr
    assert "then ./invokew up" in done.stderr.splitlines()[-1]
    assert list(instance.folder.iterdir()) == [instance.record]
