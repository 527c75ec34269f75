"""Tests that no text of others controls a terminal, or looks like something else."""

from __future__ import annotations

import json

import pytest

from rayside import plain

CLIPBOARD = "\x1b]52;c;Y3VybCB4IHwgc2g=\x07"
TITLE = "\x1b]0;another title\x1b\\"
# What does something to a terminal but show text: xterm's control sequences and ECMA-48.
COMMANDS = {
    "clipboard": CLIPBOARD,
    "title": TITLE,
    "link": "\x1b]8;;http://example.test\x1b\\",
    "cursor": "\x1b[10;1H",
    "erase": "\x1b[2J",
    "alternate screen": "\x1b[?1049h",
    "bracketed paste": "\x1b[?2004l",
    "answer back": "\x1b[c",
    "mouse": "\x1b[?1003h",
    "device control": "\x1bP+q544e\x1b\\",
    "application": "\x1b_anything\x1b\\",
    "reset": "\x1bc",
    "keypad": "\x1b=",
    "character set": "\x1b(0",
    "csi of eight bits": "\x9b2J",
    "osc of eight bits": "\x9d52;c;eA==\x9c",
    "bell": "\x07",
    "backspace": "\x08",
    "delete": "\x7f",
    "shift out": "\x0e",
    "next line": "\x85",
}


def obeyed(text: str) -> list[str]:
    """Returns the characters that a terminal would not just show."""
    return [char for char in text if not (char.isprintable() or char in "\t\n\r" or char in "\u3000\u200d")]


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_name_commands_no_terminal_and_what_was_in_it_is_seen(command: str) -> None:
    for clean in (plain.plain, plain.line):
        shown = clean(f"task{command}name")
        assert obeyed(shown) == []
        assert "\\x" in shown


@pytest.mark.parametrize(
    "char", ["\u202e", "\u202a", "\u2066", "\u2069", "\u200f", "\u061c", "\u2028", "\ufeff", "\udcff"]
)
def test_a_character_that_changes_how_others_are_read_or_cannot_be_written_is_made_visible(char: str) -> None:
    assert plain.plain(f"a{char}b").encode() == f"a\\u{ord(char):04x}b".encode()


@pytest.mark.parametrize(
    "text", ["naïve", "任务\u3000一", "👩\u200d💻", "\u0645\u06cc\u200c\u062e", "a\u00a0b", "tab\there"]
)
def test_ordinary_text_of_any_script_stays_as_it_is(text: str) -> None:
    assert plain.plain(text) == text


def test_lines_stay_lines_but_in_a_name_which_is_cut_where_there_is_a_bound() -> None:
    assert plain.plain("a\nb") == "a\nb"
    assert plain.line("a\nerror: b\r\n") == "a\\nerror: b\\r\\n"
    assert plain.line("x" * 1000, 20) == "x" * 17 + "..."
    assert plain.line("x" * 20, 20) == "x" * 20


@pytest.mark.parametrize("command", [*COMMANDS.values(), "\u202e", "\udcff", "\U000e0001"])
def test_json_has_no_such_character_and_says_the_same(command: str) -> None:
    value = {f"name{command}": [f"a{command}b", 'quote " and \\', "任务"]}
    text = plain.document(value)
    assert obeyed(text) == []
    assert json.loads(text) == value
    assert "任务" in text


# --- a program's output --------------------------------------------------------------------------


@pytest.mark.parametrize("colours", [True, False])
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_output_loses_each_command_whole_wherever_it_is_cut(command: str, colours: bool) -> None:
    text = f"before{command}after\n"
    for pieces in (*([text[:at], text[at:]] for at in range(len(text) + 1)), [*text]):
        stream = plain.Stream(colours=colours)
        assert "".join(map(stream.feed, pieces)) + stream.end() == "beforeafter\n"
    assert plain.Stream(colours=colours).feed(text) == "beforeafter\n"


def test_colours_stay_where_they_are_wanted_and_end_with_each_piece() -> None:
    stream = plain.Stream(colours=True)
    assert stream.feed("\x1b[1;31mred") == "\x1b[1;31mred\x1b[0m"
    assert stream.feed(" still\x1b[0m no more") == "\x1b[1;31m still\x1b[0m no more"
    assert stream.feed(" plain\n") == " plain\n"
    assert plain.Stream(colours=False).feed("\x1b[1;31mred\x1b[0m\n") == "red\n"
    # Progress bars are drawn.
    assert plain.Stream(colours=False).feed("\r 10%\r 20%\n") == "\r 10%\r 20%\n"


def test_a_command_without_an_end_swallows_nothing() -> None:
    for begun in ("\x1b]52;c;", "\x1bP", "\x1b[", "\x9d"):
        stream = plain.Stream(colours=True)
        shown = stream.feed(begun) + stream.feed("x" * 5000) + stream.feed("\nthe end\n") + stream.end()
        assert shown.endswith("\nthe end\n")
        assert len(shown) > 5000
        assert obeyed(shown) == []


def test_a_stream_of_beginnings_costs_little() -> None:
    stream = plain.Stream(colours=True)
    shown = "".join(stream.feed("\x1b[" * 5000) for _ in range(20))
    assert obeyed(shown + stream.end()) == []


def test_one_thing_is_not_several() -> None:
    told = [plain.counted(number, "place") for number in (0, 1, 2, 1000)]
    assert told == ["0 places", "1 place", "2 places", "1,000 places"]
    told = [plain.counted(number, "process", "processes") for number in (1, 2)]
    assert told == ["1 process", "2 processes"]
    assert [plain.some_of(names) for names in ("a", "ab", "abc")] == ["a", "a and 1 other", "a and 2 others"]
