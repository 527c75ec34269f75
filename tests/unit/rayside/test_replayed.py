"""Tests what a recorded failure answers to an editor, and its call that is made again."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import platform
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from rayside.capsule_file import Capsule, Error, Frame, Variable
from rayside.dap.client import Client
from rayside.dap.framing import encode
from rayside.errors import AttachFailed, RequestFailed
from rayside.relay.editor import Editor
from rayside.replayed import REFUSAL, Replayed
from rayside.worker import replayed_call
from tests.patience import PATIENCE

ABOUT = {name: "" for name in ("id", "when", "python", "ray", "job", "submission", "user", "node", "pid")}


def frame(function: str, line: int, source: str = "", **variables: str) -> Frame:
    rows = tuple(Variable(name, value, "int") for name, value in variables.items())
    return Frame(function, f"/there/{function}.py", line, source, rows, (Variable("N", "3", "int"),))


CAPSULE = Capsule(
    {**ABOUT, "task": "half", "job": "01000000", "node": "10.0.0.4"},
    {"name": "half", "module": "m", "file": "/there/inner.py", "left_out": ""},
    "/there",
    (
        Error("ValueError", "ValueError: no", "", (frame("inner", 2, "a\nb\n", x="1"), frame("outer", 7))),
        Error("KeyError", "KeyError: 'k'", "cause", (frame("deeper", 1),)),
    ),
    (),
    {},
)


def played(story: Callable[[int, Replayed], Awaitable[None]]) -> None:
    async def play() -> None:
        replayed = Replayed(CAPSULE, "the token")
        try:
            await story(await replayed.serve(0), replayed)
        finally:
            await replayed.close()

    asyncio.run(asyncio.wait_for(play(), PATIENCE))


async def attached(port: int) -> Client:
    client = await Client.connect("127.0.0.1", port)
    await client.attach(options={"token": "the token"}, no_delay=False)
    return client


async def next_event(client: Client, name: str) -> Any:
    while (event := await client.events.get()) is not None:
        if event["event"] == name:
            return event.get("body")
    raise AssertionError(f"no {name}")


def test_it_is_a_process_that_has_stopped() -> None:
    async def story(port: int, replayed: Replayed) -> None:
        client = await attached(port)
        stopped = await next_event(client, "stopped")
        assert (stopped["reason"], stopped["text"], stopped["description"]) == (
            "exception",
            "ValueError",
            "no",
        )
        threads = await client.request("threads")
        thread = {"threadId": threads["threads"][0]["id"]}
        stack = (await client.request("stackTrace", thread))["stackFrames"]
        assert [each["name"] for each in stack] == ["inner", "outer", "caused by: KeyError: 'k'", "deeper"]
        part = await client.request("stackTrace", {**thread, "startFrame": 1, "levels": 1})
        assert [each["name"] for each in part["stackFrames"]] == ["outer"] and part["totalFrames"] == 4
        source = await client.request(
            "source", {"sourceReference": stack[0]["source"]["sourceReference"], "source": {}}
        )
        assert source["content"] == "a\nb\n" and "sourceReference" not in stack[1]["source"]
        scopes = (await client.request("scopes", {"frameId": stack[0]["id"]}))["scopes"]
        assert [each["name"] for each in scopes] == ["Locals", "Globals"]
        variables = await client.request("variables", {"variablesReference": scopes[0]["variablesReference"]})
        assert [(each["name"], each["value"]) for each in variables["variables"]] == [("x", "1")]
        info = await client.request("exceptionInfo", thread)
        assert info["details"]["stackTrace"].splitlines()[-2:] == [
            '  File "/there/inner.py", line 2, in inner',
            "ValueError: no",
        ]
        evaluated = await client.request("evaluate", {"expression": "N", "frameId": stack[0]["id"]})
        assert evaluated["result"] == "3"
        for command, arguments in (
            ("evaluate", {"expression": "x + 1", "frameId": stack[0]["id"]}),
            ("evaluate", {"expression": "y", "frameId": stack[0]["id"]}),
            ("evaluate", {"expression": "x", "frameId": 77}),
            ("variables", {"variablesReference": 77}),
            ("source", {"sourceReference": 77}),
            ("next", thread),
            ("setVariable", {"name": "x", "value": "2", "variablesReference": 1}),
        ):
            with pytest.raises(RequestFailed):
                await client.request(command, arguments)
        answer = await client.set_breakpoints("/there/inner.py", [{"line": 1}])
        assert answer["breakpoints"] == [{"verified": False, "message": REFUSAL}]
        await client.request("continue", thread)
        await next_event(client, "terminated")
        assert replayed.ended.is_set()
        await client.disconnect()

    played(story)


def test_a_request_that_no_user_has_made_opens_no_message_box(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: dict[str, bool] = {}
    refuse = Editor.refuse

    def noted(editor: Editor, request: Any, reason: str, *, is_for_users: bool = True) -> None:
        shown[request["command"]] = is_for_users
        refuse(editor, request, reason, is_for_users=is_for_users)

    async def story(port: int, replayed: Replayed) -> None:
        client = await attached(port)
        for command in ("debugpySystemInfo", "next"):
            with pytest.raises(RequestFailed):
                await client.request(command, {})
        await client.disconnect()

    monkeypatch.setattr(Editor, "refuse", noted)
    played(story)
    assert shown == {"debugpySystemInfo": False, "next": True}


def test_without_the_token_nothing_is_shown() -> None:
    async def story(port: int, replayed: Replayed) -> None:
        client = await Client.connect("127.0.0.1", port)
        with pytest.raises(AttachFailed):
            await client.attach(options={"token": "another"}, no_delay=False)
        for command in ("threads", "stackTrace", "configurationDone", "continue"):
            with pytest.raises(RequestFailed, match="attach first"):
                await client.request(command)
        await client.disconnect()
        assert not replayed.ended.is_set()

    played(story)


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"Content-Length: 99999999\r\n\r\n",
        encode({"seq": 1, "type": "request", "command": "variables", "arguments": {"token": [1]}}),
        encode({"seq": 1, "type": "request", "command": "attach", "arguments": {"token": "\ud800"}}),
    ],
)
def test_whoever_connects_does_no_harm(sent: bytes) -> None:
    async def story(port: int, replayed: Replayed) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        assert b'"success":false' in await reader.read(65536)
        writer.close()
        client = await attached(port)
        assert (await next_event(client, "stopped"))["reason"] == "exception"
        await client.disconnect()

    played(story)


# --- the call, again ---------------------------------------------------------------------

THEN = """\
LIMIT = 2


def doubled(n):
    return 2 * n


def work(n, by=1):
    return doubled(n) / by
"""
NOW = """\
from math import floor

LIMIT = 5


def doubled(n):
    return 2 * n + _extra()


def _extra():
    return LIMIT


def work(n, by=1):
    def inner():
        return floor(doubled(n))

    return inner()
"""
# It unpickles functions of a module that is not there, as those are that Ray pickles by value.
CLOUDPICKLE = """\
import pickle
import platform
import types


def loads(data):
    value = pickle.loads(data)
    if isinstance(value, dict) and "text" in value:
        variables = {"__builtins__": __builtins__}
        exec(compile(value["text"], value["file"], "exec"), variables)
        # Only what the function uses is pickled with it.
        return {name: variables.pop(name) for name in ("work",)}["work"]
    return value
"""


@pytest.fixture
def again(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Returns what calls `work` again, in a folder that has `main.py` with a text, or does not have it."""
    here, folder, packages = (tmp_path / name for name in ("here", "folder", "packages"))
    for each in (here, folder, packages / "ray", folder / "inputs"):
        each.mkdir(parents=True)
    (packages / "ray" / "__init__.py").write_text("")
    (packages / "ray" / "cloudpickle.py").write_text(CLOUDPICKLE)

    def run(
        text: str | None, by: int = 1, python: str = platform.python_version()
    ) -> subprocess.CompletedProcess[str]:
        if text is not None:
            (here / "main.py").write_text(text)
        (folder / "function.pickle").write_bytes(pickle.dumps({"text": THEN, "file": "/there/main.py"}))
        (folder / "inputs" / "0.pickle").write_bytes(pickle.dumps(4))
        (folder / "inputs" / "1.pickle").write_bytes(pickle.dumps(by))
        (folder / "copy.py").write_text(THEN)
        call = {
            **{"function": "function.pickle", "name": "work", "file": "/there/main.py", "folder": "/there"},
            "python": python,
            "sources": {"/there/main.py": "copy.py"},
            "inputs": [
                {"file": "inputs/0.pickle", "keyword": ""},
                {"file": "inputs/1.pickle", "keyword": "by"},
            ],
        }
        (folder / replayed_call.CALL).write_text(json.dumps(call))
        return subprocess.run(
            [sys.executable, replayed_call.__file__, str(folder)],
            cwd=here,
            env={**os.environ, "PYTHONPATH": str(packages)},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    return run


def test_the_function_has_todays_source(again: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = again(NOW)
    assert done.returncode == 0, done.stderr
    assert "main.py: as it is here now" in done.stderr and "work returned 13" in done.stderr


def test_without_todays_file_it_is_the_recorded_one(
    again: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = again(None)
    assert "main.py: as recorded, for it is not here" in done.stderr and "work returned 8.0" in done.stderr
    failed = again(None, by=0)
    assert failed.returncode == 1
    assert "copy.py" in failed.stderr and "return doubled(n) / by" in failed.stderr


def test_a_file_that_is_no_python_now_is_named(
    again: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = again("def work(:\n")
    assert "main.py:1: invalid syntax" in done.stderr and "work returned 8.0" in done.stderr


def test_another_python_calls_nothing(again: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = again(None, python="3.4.1")
    assert done.returncode == 1 and "it was recorded by Python 3.4.1, and this is Python" in done.stderr
