"""Follows README and docs literally: each command that they show is run in a terminal, as it is written."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests

from bootstrap.settings import ROOT
from rayside.client.terminal import PROMPT
from tests import docs_commands
from tests.checkout import check_out
from tests.docs_commands import ON_KIND, Block
from tests.integration.conftest import Rayside, apart
from tests.integration.screen import Screen

CHOICE, DONE, FAILED = "which one? [1] ", "every command has ended well", "this command failed: "
LINE = "\r\n"
# The first `up` of a clone downloads what invokew needs.
PATIENCE = 900.0
# The program and the package that pages speak of without showing them: at lines 12 and 42 is a task,
# which knows `batch` and `loss`.
TRAIN = "\n".join(
    [
        '"""Trains nothing, in as many lines as the pages speak of."""',
        "",
        "import ray",
        "from lib.model import fit",
        "",
        "",
        "@ray.remote",
        "def train(batch: int) -> int:",
        "    rows = list(range(batch))",
        "    rows.reverse()",
        "    total = loss = 0",
        "    total += sum(rows)",
        *(f"    # {number}" for number in range(13, 42)),
        "    total += batch",
        "    return fit(total)",
        "",
        "",
        "print(ray.get([train.remote(batch) for batch in range(6)]))",
        "",
    ]
)
MODEL = '"""A model."""\n\n\n\n\ndef fit(total: int) -> int:\n    return total + 1\n'
# A job that runs, and ends by itself.
RUNNING = 'python -c "import time; time.sleep(60)"'


@dataclass(frozen=True)
class User:
    """Somebody who has a clone, and types what the pages say."""

    clone: Path
    rayside: Rayside

    @property
    def environment(self) -> dict[str, str]:
        screens = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
        return {name: value for name, value in self.rayside.environment.items() if name not in screens}

    def follow(self, block: Block) -> str:
        """Runs a block, resuming each stop, and returns what the terminal showed; fails with a command."""
        left_out = set(block.commands) - set(docs_commands.runnable(block))
        lines = [line for line in block.lines if docs_commands.without_comment(line).strip() not in left_out]
        # Whoever reads the terminal has to come to the end of it before it is closed: so both ends wait.
        script = [
            f"cd {shlex.quote(str(self.clone))}",
            "set -eo pipefail",
            f"trap 'echo \"{FAILED}$BASH_COMMAND\"; read -r' ERR",
            *lines,
            f"echo {DONE}; read -r",
        ]
        terminal = Screen("/bin/bash", "-c", "\n".join(script), env=self.environment)
        shown, end = "", time.monotonic() + PATIENCE
        try:
            while not terminal.shows(DONE, seconds=0):
                assert time.monotonic() < end, f"{block.name}: {_last(shown)}"
                for question, answer in ((PROMPT, "continue\r"), (CHOICE, "1\r")):
                    if terminal.shows(question, seconds=0.1):
                        shown += terminal.until(question)
                        terminal.type(answer)
                if terminal.shows(FAILED, seconds=0):
                    shown += terminal.until(FAILED)
                    raise AssertionError(f"{block.name}: {_last(shown)}\n{FAILED}{terminal.until(LINE)}")
            return shown + terminal.until(DONE)
        finally:
            terminal.close()

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["./invokew", *arguments],
            cwd=self.clone,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def json(self, *arguments: str) -> Any:
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def user() -> Iterator[User]:
    """Provides a fresh clone, in a path with a space, with settings that keep it apart from others."""
    folder = Path(tempfile.mkdtemp(prefix="rs-", dir="/tmp"))
    clone = check_out(folder / "a clone")
    settings = apart(folder / "state", target="local", ray_patience=PATIENCE)
    reader = User(clone, Rayside(settings))
    yield reader
    done = reader.run("down")
    shutil.rmtree(folder, ignore_errors=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert reader.rayside.processes() == []


def _last(shown: str) -> str:
    """Returns the end of what a terminal showed, without what was drawn over."""
    lines = (line.rpartition("\x1b[2K")[2] for line in shown.split(LINE))
    return "\n".join([line for line in lines if line.strip()][-40:])


@pytest.fixture
def cluster(user: User) -> User:
    """Brings the cluster up, and writes what the pages call `train.py`."""
    if not user.json("status")["ready"]:
        done = user.run("up", "--no-example")
        assert done.returncode == 0, done.stdout + done.stderr
    (user.clone / "lib" / "model").mkdir(parents=True, exist_ok=True)
    (user.clone / "lib" / "model" / "__init__.py").write_text(MODEL)
    (user.clone / "train.py").write_text(TRAIN)
    return user


@pytest.mark.gate
def test_the_readme_does_what_it_says_from_its_first_line_to_the_removal(user: User) -> None:
    first, own, removal = [block for block in docs_commands.run_on_local() if block.document == "README.md"]
    shown = user.follow(first)
    assert user.json("status")["ready"] is True
    assert [task["task"] for task in user.json("breakpoints")] == ["estimate"]
    link = re.search(rf"http://127\.0\.0\.1:{user.rayside.settings.workspace_port}/\S*", shown)
    assert link, shown
    assert requests.get(link[0], timeout=PATIENCE).status_code == 200

    shown = user.follow(own)
    assert "sample_code.py:19" in shown
    assert "statistics.py:8" in shown
    assert "counts as false" not in shown
    assert "ended: SUCCEEDED" in shown

    user.follow(removal)
    assert user.rayside.processes() == []
    assert not user.rayside.settings.state_folder.exists()


OTHERS = [block for block in docs_commands.run_on_local() if block.document != "README.md"]
FRESH = [block for block in OTHERS if docs_commands.changes_settings(block)]
STANDING = [block for block in OTHERS if block not in FRESH]


@pytest.mark.parametrize("block", FRESH, ids=lambda block: block.name)
def test_a_block_with_settings_of_its_own_works_where_nothing_is_up(user: User, block: Block) -> None:
    assert user.run("down").returncode == 0
    user.follow(block)
    assert user.run("down").returncode == 0


@pytest.mark.parametrize("block", STANDING, ids=lambda block: block.name)
def test_a_block_works_on_a_cluster_that_is_up(cluster: User, block: Block) -> None:
    if any("--stacks" in command for command in block.commands):
        # A job of the block before has perhaps ended, and a job that has ended has no stacks.
        assert cluster.run("submit", "--debug", "--entrypoint", RUNNING).returncode == 0
    compares = any("--compare" in command for command in block.commands)
    if compares:
        # Their debugger's input ends, and leaves them stopped.
        assert cluster.run("submit", "--debug", "--entrypoint", "python train.py").returncode == 0
        cluster.run("debug", "--break", "train.py:12")
    shown = cluster.follow(block)
    if compares:
        assert "loss  in " in shown
        cluster.json("debug")  # lets them go on
    if any(re.match(r"\./invokew debug --break", command) for command in block.commands):
        assert "ended: SUCCEEDED" in shown


@pytest.mark.parametrize("command", ON_KIND)
def test_a_command_works_on_kind(up: Rayside, command: str) -> None:
    done = subprocess.run(
        ["/bin/bash", "-c", command],
        cwd=ROOT,
        env={**os.environ, **up.environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
