"""Tests that a lab's check sets what an editor can set, over a relay with a real debuggee."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bootstrap.labs.exercise import connecting
from rayside.client.events import JobState
from rayside.client.scripted import run as debug
from rayside.client.session import AttachOptions
from tests.integration.relay_debuggees import TOKEN, Process, relay_over

LOOP = """\
def work(x):
    y = x * 2
    return y

for i in range(10):
    work(i)
print("done")
"""


class Watched:
    """Ends when the process has ended."""

    def __init__(self, process: Process) -> None:
        self.process = process

    def job(self) -> JobState:
        return JobState("job", "SUCCEEDED" if self.process.ended else "RUNNING", self.process.ended)


async def test_a_hit_count_stops_once_and_a_logpoint_is_heard(tmp_path: Path) -> None:
    async with relay_over(tmp_path) as setting:
        (process,) = await setting.cluster.start(LOOP)
        points: list[dict[str, Any]] = [
            {"line": 2, "hitCondition": "4"},
            {"line": 3, "condition": "x > 7", "logMessage": "{y}"},
            {"line": 7},  # It stops behind all messages, so that none is missed.
        ]
        path = str(setting.cluster.here / "job.py")
        messages: list[dict[str, Any]] = []
        said: list[str] = []
        options = AttachOptions(connecting(setting.port, {path: points}, messages, said.append), TOKEN)
        document = await debug(options, Watched(process), on_event=lambda _: None)
        assert [stop["line"] for stop in document["stopped"]] == [2, 7]
        assert document["stopped"][0]["locals"]["x"] == "3"
        assert messages == [{"task": "task-1", "line": 3, "text": text} for text in ("16", "18")]
        assert said == ["task-1 says: 16", "task-1 says: 18"]
