"""Tests what plays PyCharm's part in lab 8: it takes what pydevd sends, and nothing of a stranger's."""

from __future__ import annotations

import importlib.util
import socket
import sys
from types import ModuleType

import pytest

from bootstrap.labs.lesson import FOLDER

# These are lines as pydevd-pycharm 263.7307.50 sends them.
STOPPED = (
    '105\t4\t<xml><thread id="pid_17755_id_139677587675472" stop_reason="111" message=""'
    ' suspend_type="trace">'
    '<frame id="139677563963648" name="takings" file="/tmp/a b%27/main.py" line="19"></frame>'
    '<frame id="139677563071728" name="%26lt%3Bmodule%26gt%3B" file="/tmp/other.py" line="9"></frame>'
    "</thread></xml>\n"
)
VALUE = (
    '113\t7\t<xml><var name="weights.get%2528%2527x%2527%2529" type="str" qualifier="builtins"'
    ' value="n%25C3%25A9%2522%26lt%3B%2526" />%0A</xml>\n'
)


@pytest.fixture(scope="module")
def ide() -> ModuleType:
    spec = importlib.util.spec_from_file_location("lab_08_ide", FOLDER / "08-pycharm" / "ide.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def test_a_line_is_a_command_wherever_it_is_split(ide: ModuleType) -> None:
    data = (STOPPED + VALUE).encode()
    whole = ide.Lines().feed(data)
    assert [each.number for each in whole] == [ide.SUSPENDED, ide.EVALUATE]
    for at in range(len(data)):
        lines = ide.Lines()
        assert lines.feed(data[:at]) + lines.feed(data[at:]) == whole


def test_a_stop_says_where_and_a_value_is_as_it_was(ide: ModuleType) -> None:
    stopped, value = ide.Lines().feed((STOPPED + VALUE).encode())
    place = ide.stop(stopped.text)
    assert (place.function, place.file, place.line) == ("takings", "/tmp/a b'/main.py", 19)
    assert (place.thread, place.frame) == ("pid_17755_id_139677587675472", "139677563963648")
    assert ide.value(value.text) == 'né"<&'


@pytest.mark.parametrize("line", [b"", b"105", b"105\t4", b"one\t4\t", b"105\tfour\t", b"\xff\t4\t"])
def test_what_is_no_command_is_refused(ide: ModuleType, line: bytes) -> None:
    with pytest.raises(ValueError):
        ide.Lines().feed(line + b"\n")


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_line_without_an_end_is_refused(ide: ModuleType, end: bytes) -> None:
    lines = ide.Lines()
    lines.feed(b"105\t4\t" + b"a" * (ide.LONGEST - 10))
    with pytest.raises(ValueError, match="too long"):
        lines.feed(b"aaaaa" + end)


@pytest.mark.parametrize(
    "text", ["", "<xml></xml>", '<xml><thread id="a"></thread></xml>', "<xml><var /></xml>"]
)
def test_what_is_no_stop_and_no_value_is_refused(ide: ModuleType, text: str) -> None:
    with pytest.raises(ValueError):
        ide.stop(text)
    with pytest.raises(ValueError):
        ide.value(text)


def test_a_terminal_is_told_nothing(ide: ModuleType) -> None:
    assert ide.printable("a\x1b]0;title\x07\nb\u202e") == "a?]0;title??b?"
    assert len(ide.printable("a" * 1000)) == 300


def test_a_stop_is_evaluated_and_goes_on(ide: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    ours, theirs = socket.socketpair()
    stops: list[None] = []
    with ours, theirs:
        answer = VALUE.replace("\t7\t", "\t5\t")  # It bears the number of the question.
        theirs.sendall(("501\t1\t263.1\n" + STOPPED + "116\t6\t<xml/>\n" + answer).encode())
        theirs.shutdown(socket.SHUT_WR)
        ide.Worker(ours, ["name"], lambda: stops.append(None)).talk()
        asked = theirs.recv(4096).decode().splitlines()
    assert asked == [
        "501\t1\t1.0",
        "101\t3\t",
        "113\t5\tpid_17755_id_139677587675472\t139677563963648\tLOCAL\tname\t1",
        "106\t7\tpid_17755_id_139677587675472",
    ]
    assert capsys.readouterr().out.splitlines() == [
        "a worker has connected, with pydevd 263.1",
        "stopped in takings, line 19 of /tmp/a b'/main.py",
        '  name = né"<&',
    ]
    assert len(stops) == 1


def test_a_worker_that_goes_while_it_is_asked_is_no_stop(ide: ModuleType) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(STOPPED.encode())
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(ConnectionError, match="has gone"):
            ide.Worker(ours, ["name"], lambda: pytest.fail("a stop")).talk()
