"""Tests that debuggees and editors send each other only what DAP has, typed and bounded."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from rayside.relay import messages
from rayside.relay.schemas import (
    REQUESTS,
    All,
    Choice,
    Exact,
    Flag,
    Many,
    NotDap,
    Number,
    Printed,
    Record,
    Text,
    arguments_of,
)

BAD = "\x1b]52;c;eA==\x07\x9b2J\u202e"
# Fields by which an editor, or an extension of it, would do something: none is in any table.
ACTED_UPON = (
    *("origin", "adapterData", "sources", "checksums", "url", "urlLabel", "command", "commands"),
    *("memoryReference", "instructionPointerReference", "valueLocationReference"),
    *("declarationLocationReference", "__vscodeVariableMenuContext", "lazy", "moduleId", "data", "group"),
    *("html", "markdown", "mimeType"),
)
STRANGE: tuple[Any, ...] = (
    *(None, True, -1, 10**30, 0.5, float("nan"), "x" * 10_000_000, BAD),
    *([], {}, [[[]]], {"a": {"a": {}}}, [None, 1, "x"]),
)


def full(rule: Any) -> Any:
    """Returns a value with every field of a rule, and with more than DAP has in every object."""
    if isinstance(rule, Record):
        more: dict[str, Any] = dict.fromkeys(ACTED_UPON, "x")
        return {**more, **{name: full(inner) for name, inner in rule.fields.items()}}
    if isinstance(rule, Many | All):
        return [full(rule.rule)]
    if isinstance(rule, Choice):
        return min(rule.words)
    if isinstance(rule, Flag):
        return True
    return 1 if isinstance(rule, Number) else "text"


def size(value: Any) -> int:
    """Returns the number of characters and members."""
    if isinstance(value, dict):
        return sum(size(inner) for inner in value.values()) + len(value)
    if isinstance(value, list):
        return sum(size(inner) for inner in value) + len(value)
    return len(value) if isinstance(value, str) else 1


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yields the path to each member."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in inner:
        yield (*path, key)
        yield from places(member, (*path, key))


def names(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value).union(*(names(inner) for inner in value.values()))
    return set().union(*(names(inner) for inner in value)) if isinstance(value, list) else set()


def texts(value: Any) -> list[str]:
    if isinstance(value, dict | list):
        members = value.values() if isinstance(value, dict) else value
        return [text for inner in members for text in texts(inner)]
    return [value] if isinstance(value, str) else []


def with_one(value: Any, path: tuple[Any, ...], other: Any) -> Any:
    """Returns a copy in which another value is at that path."""
    if not path:
        return other
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = with_one(copy[path[0]], path[1:], other)
    return copy


SAYINGS = [("event", name) for name in messages.EVENTS] + [("response", name) for name in messages.RESPONSES]


def rebuilt(kind: str, name: str, body: Any) -> Any:
    """Returns what the relay makes of a body."""
    if kind == "event":
        return messages.event({"event": name, "body": body})
    return messages.response(name, {"success": True, "body": body})


def rule_of(kind: str, name: str) -> Record:
    return (messages.EVENTS if kind == "event" else messages.RESPONSES)[name]


# --- debuggees -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "name"), SAYINGS)
def test_what_dap_has_passes_and_what_an_editor_would_act_upon_does_not(kind: str, name: str) -> None:
    body = full(rule_of(kind, name))
    message = rebuilt(kind, name, body)["body"]
    assert names(message) == names(body) - set(ACTED_UPON)


@pytest.mark.parametrize(("kind", "name"), SAYINGS)
def test_whatever_stands_there_the_answer_is_bounded_typed_and_harmless(kind: str, name: str) -> None:
    body = full(rule_of(kind, name))
    known = names(body) - set(ACTED_UPON)
    for path, strange in itertools.product([(), *places(body)], STRANGE):
        message = rebuilt(kind, name, with_one(body, path, strange))
        assert size(message) < 4_100_000, (path, type(strange))
        assert names(message) <= known | {"event", "body", "success", "message"}
        assert not [text for text in texts(message) for bad in "\x1b\x07\x9b\u202e" if bad in text], path


@pytest.mark.parametrize(
    "name",
    ["process", "module", "capabilities", "memory", "startDebugging", "vscode.open", "", None, 1, [], {}],
)
def test_an_event_that_is_not_known_is_none(name: Any) -> None:
    assert messages.event({"event": name, "body": {"category": "x"}}) is None
    assert messages.event({"event": "output", "body": {"category": "telemetry", "output": "x"}}) is None


def test_output_keeps_its_text_and_loses_every_sequence() -> None:
    body = {"category": "stdout", "output": f"\x1b[31mred{BAD}\n"}
    message = messages.event({"event": "output", "body": body})
    assert message == {"event": "output", "body": {"category": "stdout", "output": "red\\u202e\n"}}


def test_a_list_is_cut_and_what_is_wrong_in_it_left_out() -> None:
    frames = [{"id": number, "name": "f"} for number in range(100_000)]
    message = messages.response("stackTrace", {"success": True, "body": {"stackFrames": ["x", *frames]}})
    assert len(message["body"]["stackFrames"]) == 4_999


def test_where_the_place_in_a_list_counts_what_is_wrong_leaves_a_gap() -> None:
    body = {"breakpoints": [None, {"id": 1, "verified": True}]}
    message = messages.response("setBreakpoints", {"success": True, "body": body})
    assert message["body"]["breakpoints"] == [{}, {"id": 1, "verified": True}]


def test_an_exception_inside_an_exception_has_an_end() -> None:
    details: Any = {"message": "innermost"}
    for _ in range(500):
        details = {"message": "outer", "innerException": [details]}
    body = {"exceptionId": "E", "details": details}
    message = messages.response("exceptionInfo", {"success": True, "body": body})
    assert size(message) < 100


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"success": False, "message": f"no{BAD}"}, "no\\x1b]52;c;eA==\\x07\\x9b2J\\u202e"),
        ({"success": False, "body": {"error": {"format": "why", "url": "http://x"}}}, "why"),
        ({"success": False, "message": "x" * 10**6}, "x" * 4_000 + "..."),
        ({"success": "yes", "body": {}}, "no reason was given"),
        ({"message": {}}, "no reason was given"),
        ({"success": False, "body": {"error": []}, "message": None}, "no reason was given"),
    ],
)
def test_a_refusal_has_a_reason_that_is_safe_to_show(message: Any, reason: str) -> None:
    assert messages.response("evaluate", message) == {"success": False, "message": reason}


def test_an_answer_that_lacks_what_it_needs_is_a_refusal() -> None:
    message = messages.response("evaluate", {"success": True, "body": {"result": 1}})
    assert message["success"] is False
    assert "`result` has to be a text" in message["message"]


def test_the_body_of_an_answer_to_what_is_not_known_is_empty() -> None:
    assert messages.response("pydevdX", {"success": True, "body": {"a": 1}}) == {"success": True, "body": {}}


# --- editors -------------------------------------------------------------------------------------


def test_an_editors_code_is_not_touched_and_only_requests_that_the_relay_knows_are_questions() -> None:
    for command in ("pydevdAuthorize", "setDebuggerProperty", "modules", "runInTerminal", "readMemory", ""):
        assert arguments_of(command, {}) is None
    arguments = {"expression": f"print('{BAD}\n')", "context": "repl"}
    assert arguments_of("evaluate", arguments) == arguments
    # Null is as if it were not there.
    assert arguments_of("next", {"threadId": 1, "granularity": None}) == {"threadId": 1}


@pytest.mark.parametrize("command", sorted(REQUESTS.keys() - {"group", "retry"}))  # not DAP's
def test_an_argument_that_dap_does_not_have_is_left_out(command: str) -> None:
    arguments = full(REQUESTS[command])
    assert names(arguments_of(command, arguments)) <= names(arguments) - set(ACTED_UPON) | {"checksums"}


@pytest.mark.parametrize(
    ("command", "arguments", "reason"),
    [
        ("continue", {}, "`threadId` is missing"),
        ("continue", {"threadId": "1"}, "`threadId` has to be a number from 0 to 2147483647"),
        ("evaluate", {"expression": ["x"]}, "`expression` has to be a text"),
        ("evaluate", {"expression": "x" * 2_000_000}, "`expression` has to be a text of at most 1000000"),
        (
            "setBreakpoints",
            {"source": {"path": "/x"}, "breakpoints": [{"line": 1}, {"line": "2"}]},
            r"`breakpoints\[1\]\.line` has to be a number",
        ),
        ("setBreakpoints", {"source": {}, "breakpoints": [{"line": 1}] * 10_001}, "a list of at most 10000"),
        ("variables", {"variablesReference": 1, "filter": "all"}, "`filter` has to be one of indexed, named"),
    ],
)
def test_what_dap_does_not_have_is_refused_with_a_sentence(command: str, arguments: Any, reason: str) -> None:
    with pytest.raises(NotDap, match=reason):
        arguments_of(command, arguments)


# --- rules ---------------------------------------------------------------------------------------


def test_a_text_is_cut_and_is_one_line_unless_it_may_have_several() -> None:
    assert Text(10).take("a\nb" + "x" * 100, "") == "a\\nbxxxx..."
    assert Text(10, lines=True).take("a\nb" + "x" * 100, "") == "a\nbxxxxxxx..."
    assert len(Printed(10).take("x" * 100, "")) < 20


def test_what_has_to_stay_as_it_is_is_not_cut_but_refused() -> None:
    for value in ("x" * 11, "a\x1b", "a\u202e"):
        with pytest.raises(NotDap):
            Exact(10).take(value, "")
    assert Exact(10, trusted=True).take("a\x1b", "") == "a\x1b"


def test_an_exceptions_name_is_just_that() -> None:
    noted = "KeyError       (note: full exception trace is shown but execution is paused at: bad)"
    stop = {"reason": "exception", "threadId": 1, "text": noted, "description": "'k'"}
    assert rebuilt("event", "stopped", stop)["body"] == {**stop, "text": "KeyError"}
    information = rebuilt("response", "exceptionInfo", {"exceptionId": noted, "description": "'k'"})
    assert information["body"] == {"exceptionId": "KeyError", "description": "'k'"}
