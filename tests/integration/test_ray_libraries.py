"""Tests Ray Serve and Ray Tune in the debugger: a stopped replica stays alive, and a trial has its name."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from bootstrap.dap.client import Client
from bootstrap.settings import RAY_VERSION
from tests.integration.conftest import Rayside, free_ports
from tests.integration.relay_debuggees import Session

TIMEOUT = 1.0  # seconds: Serve's, of a health check
HELD = 6.0
SERVE = """\
import requests
from ray import serve

@serve.deployment(health_check_period_s=1, health_check_timeout_s=TIMEOUT)
class Model:
    async def __call__(self, request):
        x = 41
        return str(x + 1)

serve.start(http_options={"port": PORT})
serve.run(Model.bind())
print("answer", requests.get("http://127.0.0.1:PORT/", timeout=60).text)
(deployment,) = serve.status().applications["default"].deployments.values()
print("is", deployment.status.value)
"""
TUNE = """\
from ray import tune

def objective(config):
    x = config["x"]
    tune.report({"score": x})

tune.Tuner(objective, param_space={"x": tune.grid_search([1, 2])}).fit()
"""


@pytest.fixture(scope="module")
def up(rayside: Rayside) -> Rayside:
    done = rayside.run("up", "--no-example")
    assert done.returncode == 0, done.stdout + done.stderr
    return rayside


def submitted(up: Rayside, program: Path) -> str:
    environment = program.parent / "environment.yaml"
    # As a user has it whose environment lacks them: Ray installs them, once for all jobs that say the same.
    environment.write_text(f'pip: ["ray[serve,tune]=={RAY_VERSION}"]\n')
    words = ["--debug", "--runtime-env", str(environment), "--entrypoint", "python program.py"]
    return str(up.json("submit", *words, cwd=program.parent)["submission_id"])


def test_a_trial_of_tune_is_named_though_it_runs_in_a_thread_of_its_own(up: Rayside, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(TUNE)
    job = submitted(up, program)
    words = ["--job", job, "--break", "program.py:5", "--evaluate", "x", "--timeout", "300"]
    stops = up.json("debug", *words, cwd=tmp_path, timeout=400)["stopped"]
    assert [re.fullmatch(r"objective_\w+", stop["task"]) is not None for stop in stops] == [True, True], stops
    assert len({stop["task"] for stop in stops}) == 2
    assert sorted(stop["evaluated"]["x"] for stop in stops) == ["1", "2"]


def test_a_replica_that_stands_still_stays_healthy(up: Rayside, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(SERVE.replace("TIMEOUT", str(TIMEOUT)).replace("PORT", str(free_ports()[0])))
    job = submitted(up, program)

    async def hold() -> None:
        client = await Client.connect("127.0.0.1", up.settings.relay_port)
        token = up.target.instance.token_file.read_text()
        breakpoints = {str(program): [{"line": 8}]}
        await client.attach(breakpoints=breakpoints, options={"token": token, "job": job}, no_delay=False)
        editor = Session(client, patience=300)  # pip's, for the most part
        stop = await editor.event("stopped")
        assert await editor.evaluate(stop, "x") == "41"
        await asyncio.sleep(HELD)
        await editor.request("continue", threadId=stop["threadId"])
        await client.disconnect()

    asyncio.run(hold())
    done = up.run("logs", "--job", job, "--follow")
    assert "answer 42" in done.stdout and "is HEALTHY" in done.stdout, done.stdout
