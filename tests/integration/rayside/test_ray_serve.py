"""Tests Ray Serve in the debugger: a stopped replica stays alive. Data, Tune and Train are in lab 19."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import requests

from rayside.dap.client import Client
from rayside.waiting import until
from tests.integration.conftest import Rayside, free_ports
from tests.integration.relay_debuggees import Session

TIMEOUT = 3.0  # seconds: Serve's, of a health check
HELD = 15.0
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
# Ray prints what workers log between the parts of a print that has several.
print("answer " + requests.get("http://127.0.0.1:PORT/", timeout=60).text)
(deployment,) = serve.status().applications["default"].deployments.values()
print("is " + deployment.status.value)
# Another test has a proxy of its own, at another port.
serve.shutdown()
"""


@pytest.fixture(scope="module")
def up(rayside: Rayside) -> Rayside:
    done = rayside.run("up", "--no-example")
    assert done.returncode == 0, done.stdout + done.stderr
    return rayside


SERVED = """\
from ray import serve

@serve.deployment
class Model:
    async def __call__(self, request):
        x = 41
        return str(x + 1)

app = Model.bind()
"""


async def test_a_replica_that_stands_still_stays_healthy(up: Rayside, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(SERVE.replace("TIMEOUT", str(TIMEOUT)).replace("PORT", str(free_ports()[0])))
    words = ["--debug", "--entrypoint", "python program.py"]
    job = str(up.json("submit", *words, cwd=tmp_path)["submission_id"])

    client = await Client.connect("127.0.0.1", up.settings.relay_port)
    token = up.target.instance.token_file.read_text()
    breakpoints = {str(program): [{"line": 8}]}
    await client.attach(breakpoints=breakpoints, options={"token": token, "job": job}, no_delay=False)
    editor = Session(client)
    stop = await editor.event("stopped")
    assert await editor.evaluate(stop, "x") == "41"
    await asyncio.sleep(HELD)
    await editor.resume(stop)
    await client.disconnect()
    done = up.run("logs", "--job", job, "--follow")
    assert "answer 42" in done.stdout and "is HEALTHY" in done.stdout, done.stdout


def test_a_replica_of_a_config_stops(up: Rayside, tmp_path: Path) -> None:
    program, port = tmp_path / "served.py", free_ports()[0]
    program.write_text(SERVED)
    runtime_env = up.json("submit", "--serve")
    # The code is on the node already, as it is in an image.
    runtime_env["env_vars"]["PYTHONPATH"] = str(tmp_path)
    token = up.target.instance.token_file.read_text()
    api: dict[str, Any] = {"headers": {"Authorization": f"Bearer {token}"}, "timeout": 60}
    url = f"{up.target.head.url}/api/serve/applications/"
    application = {"name": "one", "import_path": "served:app", "runtime_env": runtime_env}
    config = {"http_options": {"host": "127.0.0.1", "port": port}, "applications": [application]}
    answer = requests.put(url, json=config, **api)
    assert answer.ok, answer.text

    def state() -> str:
        return str(requests.get(url, **api).json()["applications"]["one"]["status"])

    assert until(state, lambda status: status == "RUNNING", 120) == "RUNNING"

    async def debugged() -> str:
        client = await Client.connect("127.0.0.1", up.settings.relay_port)
        breakpoints = {str(program): [{"line": 7}]}
        await client.attach(breakpoints=breakpoints, options={"token": token}, no_delay=False)
        editor = Session(client)
        # Until then the replica may be asked before it has the breakpoint.
        await editor.event("breakpoint", reason="changed")
        asked = asyncio.create_task(asyncio.to_thread(requests.get, f"http://127.0.0.1:{port}/", timeout=120))
        stop = await editor.event("stopped")
        assert await editor.evaluate(stop, "x") == "41"
        await editor.resume(stop)
        text = (await asked).text
        await client.disconnect()
        return text

    assert asyncio.run(debugged()) == "42"
    assert requests.delete(url, **api).ok


def test_a_serve_config_takes_no_folders(up: Rayside, tmp_path: Path) -> None:
    error = up.json("submit", "--serve", "--working-dir", str(tmp_path), code=2)["error"]
    assert (error["id"], "takes no folders" in error["message"]) == ("invalid-argument", True)
