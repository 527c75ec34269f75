"""What `breakpoints` lists: the tasks that wait for a debugger, and those that the relay holds."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from bootstrap.console import Console
from bootstrap.dap.framing import Message
from bootstrap.ray.state import PausedTask
from bootstrap.settings import Settings
from bootstrap.targets import choice
from bootstrap.targets.target import Target
from bootstrap.verbs import jobs, paused

WAITS = PausedTask("w1", "127.0.0.2", 11, "01000000", "waits", "2026-01-01T00:00:41Z", "127.0.0.2", 52381)


def held(worker: str, task: str, since: str) -> Message:
    """As the relay says it."""
    return {
        "worker_id": worker,
        "node_ip": "127.0.0.2",
        "pid": 12,
        "job_id": "01000000",
        "task": task,
        "since": since,
    }


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Target:
    """A cluster in which one task waits and the relay holds two, in the order of their stops."""
    tasks = [
        held("w9", "first", "2026-01-01T00:00:41.086146Z"),
        held("w2", "second", "2026-01-01T00:00:41.500000Z"),
    ]
    (tmp_path / "token").write_text("secret")
    monkeypatch.setattr(paused, "ask", lambda port, request, arguments: {"tasks": tasks})
    dashboard = SimpleNamespace(paused=lambda: [WAITS])
    instance = SimpleNamespace(token_file=tmp_path / "token", ports=SimpleNamespace(relay=1))
    cluster = SimpleNamespace(access=SimpleNamespace(require=lambda: dashboard), instance=instance)
    return cast("Target", cluster)


def test_every_moment_is_of_whole_seconds_and_the_order_of_stops_stays(target: Target) -> None:
    documents = [task.document() for task in paused.paused(target)]
    assert [document["task"] for document in documents] == ["first", "second", "waits"]
    assert {document["since"] for document in documents} == {"2026-01-01T00:00:41Z"}


def test_the_table_says_which_stopped_then_and_which_began(
    target: Target, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(choice, "existing", lambda settings, shell: target)
    jobs.breakpoints(Settings(), Console())
    rows = [line.split("  ") for line in capsys.readouterr().out.splitlines()[:4]]
    assert [(row[0], row[-1].strip()) for row in rows] == [
        ("task", "when"),
        ("first", "stopped 2026-01-01T00:00:41Z"),
        ("second", "stopped 2026-01-01T00:00:41Z"),
        ("waits", "began to run 2026-01-01T00:00:41Z"),
    ]
