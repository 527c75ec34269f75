"""Tests how a debugger asks for retries: the files that differ, who is meant, what is shown."""

from __future__ import annotations

import hashlib
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from rayside.client.retrying import LONGEST, Retry, differing
from rayside.dap.framing import Message
from rayside.dap.group_commands import Command, command, drawn_retries
from rayside.errors import InvalidArgument
from rayside.ray.records import Job
from rayside.relay.group_members import Selector
from rayside.relay.retry_requests import mark_restartable
from rayside.verbs.cluster_job import edited, edits_of

JOB = Job("job-1", "01000000", "SUCCEEDED", "python a.py", "", None, 0.0, {}, {})


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_only_files_that_differ_are_sent(tmp_path: Path) -> None:
    same, changed, lines = (tmp_path / name for name in ("same.py", "changed.py", "lines.py"))
    same.write_text("x = 1\n")
    changed.write_text("x = 2\n")
    lines.write_bytes(b"x = 1\r\n")  # As Python reads it, it is the same text.
    runs = {str(each): sha256("x = 1\n") for each in (same, changed, lines, tmp_path / "gone.py")}
    asked: list[tuple[str, Message]] = []

    def ask(name: str, arguments: Message, timeout: float) -> Message:
        asked.append((name, arguments))
        return {"files": runs} if name == "sources" else {"edited": [], "retried": []}

    Retry("work", from_start=True, within=5).ask(ask)
    assert asked == [
        ("sources", {}),
        (
            "retry",
            {
                "files": [{"path": str(changed), "text": "x = 2\n"}],
                "within": 5,
                "fromStart": True,
                "task": "work",
            },
        ),
    ]


def test_a_name_that_leads_to_no_file_is_left_out(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.py"
    os.mkfifo(pipe)
    # With a writer, to read from it would not hang but give nothing.
    writer = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    threading.Timer(1, os.close, [writer]).start()
    assert differing(dict.fromkeys((str(pipe), "/nul\0.py", "/half\ud800.py"), "0")) == {}


def test_a_file_that_cannot_be_sent_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file.py"
    file.write_bytes(b"# \xff")
    with pytest.raises(InvalidArgument, match="no Python source"):
        differing({str(file): sha256("")})
    file.write_text("#" * (LONGEST + 1))
    with pytest.raises(InvalidArgument, match="more than 1,000,000 bytes"):
        differing({str(file): sha256("")})


@pytest.mark.parametrize(
    ("retry", "whom"),
    [
        (Retry(), {}),
        (Retry(" @ranks "), {"group": "ranks"}),
        (Retry("work"), {"task": "work"}),
        (Retry("", thread=3), {"threadId": 3}),
    ],
)
def test_who_is_meant(retry: Retry, whom: Message) -> None:
    asked: list[Message] = []

    def ask(name: str, arguments: Message, timeout: float) -> Message:
        asked.append(arguments)
        return {}

    retry.ask(ask)
    assert asked[-1] == {"files": [], "within": 60, **whom}


def test_failed_members_are_a_group_of_their_own() -> None:
    assert command("@failed retry within 90") == Command("failed", "retry", 90)
    failed = Selector.of("failed")
    assert failed.takes({"failed": True}) and not failed.takes({"failed": False}) and not failed.takes({})


def test_outcomes_are_shown_together_the_rarest_first() -> None:
    def row(task: str, outcome: str, why: str = "") -> Message:
        return {"task": task, "worker_id": "ab", "outcome": outcome, "why": why}

    rows = [*(row("work", "returned") for _ in range(5)), row("", "raised", "ValueError: \x1b[31m")]
    assert [*drawn_retries({"retried": rows, "edited": ["/src/a.py"]})] == [
        "1 raised: ValueError: \\x1b[31m",
        "     ab",
        "5 returned",
        "     work ab; work ab; work ab; 2 more",
        "edited: /src/a.py",
    ]


@pytest.mark.parametrize(
    "listed", ["", "{}", "no JSON", "[1]", '"text"', "[" * 100_000], ids=lambda each: each[:9]
)
def test_what_is_no_list_of_edits_counts_as_none(listed: str) -> None:
    job = replace(JOB, metadata={"rayside.edits": listed})
    assert edits_of(job) == {} and edited(job) == ""


@pytest.mark.parametrize(
    ("asked", "total", "failed", "marks"),
    [
        ({}, 2, True, [False, True]),
        ({}, 2, False, [False, False]),
        ({"startFrame": 0, "levels": 2}, 3, True, [False, False]),
        ({"startFrame": 1, "levels": 2}, 3, True, [False, True]),
    ],
)
def test_the_outermost_frame_of_a_failed_call_can_be_restarted(
    asked: Message, total: int, failed: bool, marks: list[bool]
) -> None:
    body: Message = {"stackFrames": [{"id": 1}, {"id": 2}], "totalFrames": total}
    mark_restartable(asked, body, failed=failed)
    assert [frame["canRestart"] for frame in body["stackFrames"]] == marks
