"""Tests what a forwarder is told, and the frames of a tunnel, split anywhere."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import WSMsgType

from bootstrap.errors import PodFailed
from bootstrap.kube.api import Kube
from bootstrap.kube.forwarder import Forward, document, parse
from bootstrap.kube.tunnel import Tunnel
from bootstrap.shell import Shell
from bootstrap.step import Condition
from bootstrap.steps import marks
from bootstrap.steps.forwards import Forwards

KUBE = Kube(Path("/x/kubeconfig"), "kind-x", "ns")
FORWARDS = (
    Forward("dashboard", 8265, 8265),
    Forward("workspace", 9443, 8443),
    Forward("relay", 5678, 5678, speaks="dap"),
)


class Message:
    def __init__(self, kind: WSMsgType, data: bytes = b"") -> None:
        self.type, self.data = kind, data


CLOSE = Message(WSMsgType.CLOSE)
BROKEN = Message(WSMsgType.CLOSED)


class ScriptedSocket:
    """Is a WebSocket that sends these messages, and takes none."""

    def __init__(self, *messages: bytes | Message) -> None:
        self._messages = [
            message if isinstance(message, Message) else Message(WSMsgType.BINARY, message)
            for message in messages
        ]

    async def receive(self) -> Message:
        assert self._messages, "nothing more is scripted"
        return self._messages.pop(0)


def read(*messages: bytes | Message) -> bytes:
    """Returns all that a tunnel reads of these, to its end; every message has to be taken."""
    scripted: Any = ScriptedSocket(*messages)

    async def whole() -> bytes:
        tunnel = Tunnel(scripted, "port 1 of pod p")
        await tunnel.opened()
        received = b""
        while data := await tunnel.read():
            received += data
        assert scripted._messages == []
        return received

    return asyncio.run(whole())


PORT = b"\x49\x20"  # 8265, little endian


def test_the_port_in_front_of_each_channel_is_not_data() -> None:
    assert read(b"\0" + PORT, b"\1" + PORT, b"\0ab", b"\0", b"\0cd", CLOSE) == b"abcd"
    assert read(b"\0" + PORT + b"ab", b"\1" + PORT, CLOSE) == b"ab"
    assert read(b"\0" + PORT[:1], b"", b"\0" + PORT[1:] + b"a", b"\1" + PORT, CLOSE) == b"a"


def test_what_the_error_channel_says_is_the_error() -> None:
    with pytest.raises(PodFailed, match=r"^port 1 of pod p can't be reached: dial: refused$"):
        read(b"\0" + PORT, b"\1" + PORT, b"\1dial:\n", b"\1 refused", CLOSE)
    with pytest.raises(PodFailed, match="it ended at once"):
        read(CLOSE)


def test_a_connection_that_breaks_is_no_end() -> None:
    with pytest.raises(PodFailed, match="the connection to the Kubernetes API broke"):
        read(b"\0" + PORT, b"\0half", BROKEN)


def test_what_a_pod_says_of_a_failure_is_kept_within_bounds() -> None:
    with pytest.raises(PodFailed) as caught:
        read(b"\0" + PORT, b"\1" + PORT, *[b"\1" + b"x" * 60_000] * 10, b"\1the end", CLOSE)
    assert caught.value.message.endswith("xthe end")
    assert len(caught.value.message) < 5000


def test_the_document_is_read_back_as_it_was() -> None:
    assert parse(document(KUBE, "a=b", FORWARDS)) == (KUBE, "a=b", list(FORWARDS))


def test_a_forward_says_where_it_is_in_what_it_speaks() -> None:
    urls = ["http://127.0.0.1:8265", "http://127.0.0.1:9443", "tcp://127.0.0.1:5678"]
    assert [forward.url for forward in FORWARDS] == urls


def test_what_was_started_before_ports_had_a_language_is_read_as_http() -> None:
    saved = json.loads(document(KUBE, "a=b", FORWARDS[:1]))
    del saved["forwards"][0]["speaks"]
    assert parse(json.dumps(saved))[2] == list(FORWARDS[:1])


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"kubeconfig": "/x"}'])
def test_no_other_document_is_taken(text: str) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        parse(text)


def test_the_step_is_missing_without_a_record_and_with_one_of_a_process_that_ended(tmp_path: Path) -> None:
    step = Forwards(Shell(), KUBE, tmp_path, FORWARDS, "a=b")
    assert step.check().condition is Condition.MISSING
    step.process.record.file.write_text("{")
    assert step.check().detail == "not running"
    step.process.record.file.write_text(json.dumps({"pid": 2**22 + 1, "created": 1.0}))
    step.log.write_text("first\nlast words\n")
    assert step.check().detail == f"its process {2**22 + 1} has ended; its log ends: last words"


def test_the_process_is_marked_and_takes_no_module_of_the_users_folder(tmp_path: Path) -> None:
    environment = Forwards(Shell(), KUBE, tmp_path, FORWARDS, "a=b").process.environment()
    assert environment[marks.FORWARDS] == str(tmp_path)
