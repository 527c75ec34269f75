"""Tests `attach`: what it shows, and the answer of its job, which comes from the cluster."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rayside.connection.access import Access
from rayside.errors import NotAttachable, NotReady
from rayside.ray.job_processes import JobProcess
from rayside.relay_actor import opening
from rayside.relay_actor.opening import ANSWER, BUSY, NOT_POSSIBLE, OPENED, Outcome, outcomes
from rayside.verbs import attaching
from tests.patience import PATIENCE
from tests.unit.scripted_debuggee import ScriptedConsole

ROW = {"worker_id": "a1", "result": OPENED, "why": "", "stack": ""}


def test_the_answer_is_one_line_of_what_is_printed() -> None:
    rows = [ROW, {"worker_id": "b2", "result": BUSY, "why": "it is in a call", "stack": "f (x.py:1)"}]
    printed = f"2026-11-23 INFO starting\n{ANSWER}{json.dumps(rows)}\nshutting down\n"
    assert outcomes(printed) == {
        "a1": Outcome("a1", OPENED),
        "b2": Outcome("b2", BUSY, "it is in a call", "f (x.py:1)"),
    }


def test_another_result_is_none() -> None:
    assert outcomes(ANSWER + json.dumps([{**ROW, "result": "root"}])) == {}


@pytest.mark.parametrize(
    "printed",
    [
        *("", "Traceback (most recent call last):", ANSWER, f"{ANSWER}{{", f"{ANSWER}7", f"{ANSWER}[7]"),
        f"{ANSWER}[{{}}]",
        ANSWER + json.dumps([{**ROW, "more": "x"}]),
        ANSWER + "[" * 200_000,
        ANSWER + json.dumps([{**ROW, "stack": "x" * 2_000_000}]),
    ],
    ids=lambda printed: printed[:30],
)
def test_what_is_no_answer_is_refused(printed: str) -> None:
    with pytest.raises(ValueError):
        outcomes(printed)


PROCESS = JobProcess("a1", 7, "n1", "127.0.0.1", "01000000", "task", "stays")


@pytest.fixture
def access(monkeypatch: pytest.MonkeyPatch) -> Access:
    monkeypatch.setattr(attaching, "processes_of", lambda dashboard, id: [PROCESS])
    return cast("Access", SimpleNamespace(require=lambda: None, identity=SimpleNamespace(user="")))


def test_what_takes_long_says_so(access: Access, monkeypatch: pytest.MonkeyPatch) -> None:
    said = threading.Event()

    class Hearing(ScriptedConsole):
        def event(self, text: str) -> None:
            super().event(text)
            said.set()

    def opened(*_: Any) -> dict[str, Outcome]:
        assert said.wait(PATIENCE)
        return {"a1": Outcome("a1", NOT_POSSIBLE)}

    monkeypatch.setattr(attaching, "_SILENT", 0.05)
    monkeypatch.setattr(attaching, "_opened", opened)
    console = Hearing()
    with pytest.raises(NotAttachable):
        attaching.attach(access, console, "j1")
    text = "opening debuggers in 1 process: a job in Ray does that, within 120 s at most"
    assert console.lines[0] == text


def test_a_job_that_does_not_end_is_the_reason_for_each(
    access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(*_: Any) -> dict[str, Outcome]:
        raise NotReady("a job of Rayside's is PENDING in Ray still", hint="")

    monkeypatch.setattr(attaching, "_opened", opened)
    with pytest.raises(NotAttachable) as caught:
        attaching.attach(access, ScriptedConsole(), "j1")
    (process,) = caught.value.fields["processes"]
    assert process["why"] == "a job of Rayside's is PENDING in Ray still"


DUMP = """\
Process 7: ray::stays
Python v3.11.7 (/usr/bin/python3.11)

Thread 7 (idle): "MainThread"
    stays (main.py:3)
    main_loop (ray/_private/worker.py:1036)
Thread 8 (idle): "ray_import_thread"
    wait (ray/util/waits.py:3)
    Thread.run (threading.py:982)
"""


def test_of_a_stack_the_programs_threads_are_shown(access: Access, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = Outcome("a1", NOT_POSSIBLE, "another job can send code only to an actor", DUMP)
    monkeypatch.setattr(attaching, "_opened", lambda *_: {"a1": outcome})
    console = ScriptedConsole()
    with pytest.raises(NotAttachable) as caught:
        attaching.attach(access, console, "j1")
    assert console.lines[-4:] == [
        "\nWhere task stays (process 7) is now:",
        'Thread 7 (idle): "MainThread"',
        "    stays (main.py:3)",
        "    main_loop (ray/_private/worker.py:1036)",
    ]
    assert caught.value.fields["processes"][0]["stack"] == DUMP


@pytest.mark.parametrize(
    ("stderr", "why"),
    [
        ("Error: No such process\n\nStack backtrace:\n   0: py_spy::main\n", "Error: No such process"),
        (
            "Error: Failed\n\nCaused by:\n  0: Permission denied (os error 1)\n  10: main\n",
            r"py-spy is not allowed to read processes there \(SYS_PTRACE\)",
        ),
        ("", "py-spy failed"),
    ],
)
def test_why_there_is_no_stack_is_one_line(
    stderr: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "py-spy"
    program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{stderr}END\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(RuntimeError, match=f"^{why}$"):
        opening._stack(7)
