"""Tests what `breakpoints` lists: the tasks that wait for a debugger, and those that the relay holds."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from rayside.connection.access import Access
from rayside.console import PACKAGE, Console
from rayside.dap.framing import Message
from rayside.errors import DebuggerGone, NotRunning, RequestFailed
from rayside.verbs import relay_requests as paused


def row(worker: str, task: str, since: str, *, held: bool = True) -> Message:
    """Returns a task as the relay lists it."""
    return {
        "worker_id": worker,
        "node_ip": "127.0.0.2",
        "pid": 12,
        "job_id": "01000000",
        "task": task,
        "since": since,
        "held": held,
    }


def access_of(folder: Path, user: str = "") -> Access:
    """Returns a cluster of which just the relay's port and token are asked for."""
    (folder / "token").write_text("secret")
    ports = SimpleNamespace(relay=1)
    identity = SimpleNamespace(token_file=folder / "token", ports=ports, user=user)
    return cast("Access", SimpleNamespace(require=lambda: None, identity=identity))


@pytest.fixture
def access(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Access:
    """A cluster in which one task waits and the relay holds two, in the order of their stops."""
    tasks = [
        row("w9", "first", "2026-01-01T00:00:41.086146Z"),
        row("w2", "second", "2026-01-01T00:00:41.500000Z"),
        row("w1", "waits", "2026-01-01T00:00:41Z", held=False),
    ]
    script_relay(monkeypatch, {"tasks": tasks, "problem": ""})
    return access_of(tmp_path)


def script_relay(monkeypatch: pytest.MonkeyPatch, answer: Message | Exception) -> None:
    def ask(port: int, command: str, arguments: Message, *, timeout: float) -> Message:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(paused, "ask", ask)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        pytest.param({"tasks": []}, "of an older Rayside", id="older"),
        pytest.param({"tasks": [], "problem": "Ray hangs"}, "Ray hangs", id="without Ray"),
        pytest.param(DebuggerGone("is not open", hint=""), "the debug relay's port 1 is not open", id="down"),
        pytest.param(RequestFailed("a wrong token", hint=""), "a wrong token", id="another cluster's"),
    ],
)
def test_where_the_relay_does_not_know_that_is_said_with_what_mends_it(
    access: Access, monkeypatch: pytest.MonkeyPatch, answer: Message | Exception, message: str
) -> None:
    script_relay(monkeypatch, answer)
    with pytest.raises(NotRunning, match=message) as caught:
        paused.paused(access)
    assert "./invokew up" in caught.value.hint


def test_every_moment_is_of_whole_seconds_and_the_order_of_stops_stays(access: Access) -> None:
    documents = [task.document() for task in paused.paused(access).tasks]
    assert [document["task"] for document in documents] == ["first", "second", "waits"]
    assert {document["since"] for document in documents} == {"2026-01-01T00:00:41Z"}


def test_the_table_says_which_stopped_then_and_which_began(
    access: Access, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    paused.breakpoints(access, Console())
    rows = [line.split("  ") for line in capsys.readouterr().out.splitlines()[:4]]
    assert [(row[0], row[-1].strip()) for row in rows] == [
        ("task", "when"),
        ("first", "stopped 2026-01-01T00:00:41Z"),
        ("second", "stopped 2026-01-01T00:00:41Z"),
        ("waits", "began to run 2026-01-01T00:00:41Z"),
    ]


@pytest.mark.parametrize(
    ("program", "user", "advice"),
    [
        ("./invokew", "", "./invokew submit runs the example, which pauses"),
        ("./invokew", "anna", "./invokew submit --help"),
        (PACKAGE, "", "rayside submit --help"),
    ],
)
def test_where_nothing_is_paused_a_command_that_works_is_advised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], program: str, user: str, advice: str
) -> None:
    identity = access_of(tmp_path, user).identity
    asked = SimpleNamespace(require=lambda: SimpleNamespace(jobs=list), identity=identity)
    paused._show_none(cast("Access", asked), Console(program=program), everyone=False)
    assert capsys.readouterr().out.endswith(f" is paused. Next: {advice}\n")
