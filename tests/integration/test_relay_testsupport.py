"""The relay with a client that was not written here: npm's `@vscode/debugadapter-testsupport`.

What it does is in relay_client/session.js. The package is fetched once, by its lock file, into the cache.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from bootstrap import cache
from bootstrap.settings import Settings
from tests.integration.relay_debuggees import PATIENCE, TOKEN, relay_over

CLIENT = Path(__file__).parent / "relay_client"
SCRIPT = """\
def work(x):
    y = x + 1
    return twice(y)


def twice(v):
    return v * 2

print(work(20), flush=True)
"""


@pytest.fixture(scope="module")
def modules() -> Path:
    """The folder of the client's packages."""
    absent = [name for name in ("node", "npm") if shutil.which(name) is None]
    if absent:
        why = f"{' and '.join(absent)} not found; enable it with ./invokew doctor --fix --tests"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(why)
    files = [CLIENT / name for name in ("package.json", "package-lock.json")]
    folder = Settings().cache_folder / f"relay-client-{cache.key(*(file.read_text() for file in files))}"
    with cache.making(folder, lambda text: None) as draft:
        if draft is not None:
            for file in files:
                shutil.copy(file, draft)
            subprocess.run(
                ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
                cwd=draft,
                env=cache.environment(folder),
                check=True,
                capture_output=True,
                timeout=300,
            )
    return folder / "node_modules"


def test_an_editor_not_written_here_debugs_two_tasks(tmp_path: Path, modules: Path) -> None:
    async def story() -> None:
        async with relay_over(tmp_path) as setting:
            processes = await setting.cluster.start(SCRIPT, count=2)
            file = setting.cluster.here / "job.py"
            client = await asyncio.create_subprocess_exec(
                *["node", str(CLIENT / "session.js"), str(setting.port), TOKEN, str(file)],
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**os.environ, "NODE_PATH": str(modules)},
            )
            said, complaint = await asyncio.wait_for(client.communicate(), 4 * PATIENCE)
            assert client.returncode == 0, complaint.decode()
            assert json.loads(said) == {
                "names": [f"task-{n} · {p.debuggee.pid}@127.0.0.1" for n, p in enumerate(processes, 1)],
                "locals": ["20", "20"],
                "changed": "1001",
                "untouched": "20",
            }
            assert [await process.end() for process in processes] == [["2000"], ["42"]]

    asyncio.run(story())
