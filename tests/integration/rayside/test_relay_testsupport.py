"""Tests the relay with a client of others: npm's `@vscode/debugadapter-testsupport`.

What it does is in relay_client/session.js. The package is fetched once, by its lock file, into the cache.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from tests import npm
from tests.integration.relay_debuggees import TOKEN, relay_over
from tests.patience import PATIENCE

pytestmark = pytest.mark.gate

CLIENT = Path(__file__).parents[1] / "relay_client"
SCRIPT = """\
def work(x):
    y = x + 1
    return twice(y)


def twice(v):
    return v * 2

print(work(20), flush=True)
"""


@pytest.fixture(scope="module")
def modules(node: Path) -> Path:
    """Provides the folder of the client's packages."""
    return npm.packages(node, CLIENT)


async def test_an_editor_not_written_here_debugs_two_tasks(tmp_path: Path, node: Path, modules: Path) -> None:
    async with relay_over(tmp_path) as setting:
        processes = await setting.cluster.start(SCRIPT, count=2)
        file = setting.cluster.here / "job.py"
        client = await asyncio.create_subprocess_exec(
            *[str(node / "node"), str(CLIENT / "session.js"), str(setting.port), TOKEN, str(file)],
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "NODE_PATH": str(modules)},
        )
        output, complaint = await asyncio.wait_for(client.communicate(), 4 * PATIENCE)
        assert client.returncode == 0, complaint.decode()
        assert json.loads(output) == {
            "names": [f"task-{n} · {p.debuggee.pid}@127.0.0.1" for n, p in enumerate(processes, 1)],
            "locals": ["20", "20"],
            "changed": "1001",
            "untouched": "20",
        }
        assert [await process.end() for process in processes] == [["2000"], ["42"]]
