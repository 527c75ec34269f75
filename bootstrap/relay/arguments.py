"""Has tables of the arguments that debuggees get of editors: each field, with its type and its bound."""

from __future__ import annotations

from bootstrap.dap.framing import Message
from bootstrap.relay.rules import All, Exact, Flag, Number, Record, Rule, choice

_FLAG, _NUMBER = Flag(), Number()


def _arguments(*needs: str, **fields: Rule) -> Record:
    return Record(fields, frozenset(needs), strict=True)


_TEXT, _CODE = Exact(4_096, trusted=True), Exact(1_000_000, trusted=True)
_FORMAT = _arguments(
    hex=_FLAG,
    **dict.fromkeys(
        ("parameters", "parameterTypes", "parameterNames", "parameterValues", "line", "module", "includeAll"),
        _FLAG,
    ),
)
_OF_EDITOR = _arguments(
    name=_TEXT,
    path=_TEXT,
    sourceReference=_NUMBER,
    checksums=All(_arguments(algorithm=_TEXT, checksum=_TEXT), 10),
)
_THREAD: dict[str, Rule] = {"threadId": _NUMBER, "singleThread": _FLAG}
_STEP: dict[str, Rule] = {**_THREAD, "granularity": choice("statement line instruction")}
_CONDITIONS: dict[str, Rule] = {"condition": _CODE, "hitCondition": _TEXT}

# The arguments of requests, by command. A request that is not listed here does not get to a debuggee.
REQUESTS: dict[str, Record] = {
    "breakpointLocations": _arguments(
        "source",
        "line",
        source=_OF_EDITOR,
        **dict.fromkeys(("line", "column", "endLine", "endColumn"), _NUMBER),
    ),
    "cancel": _arguments(requestId=_NUMBER),
    "completions": _arguments("text", "column", frameId=_NUMBER, text=_CODE, column=_NUMBER, line=_NUMBER),
    "continue": _arguments("threadId", **_THREAD),
    "evaluate": _arguments("expression", expression=_CODE, frameId=_NUMBER, context=_TEXT, format=_FORMAT),
    "exceptionInfo": _arguments("threadId", threadId=_NUMBER),
    "goto": _arguments("threadId", "targetId", threadId=_NUMBER, targetId=_NUMBER),
    "gotoTargets": _arguments("source", "line", source=_OF_EDITOR, line=_NUMBER, column=_NUMBER),
    "next": _arguments("threadId", **_STEP),
    "pause": _arguments("threadId", threadId=_NUMBER),
    "scopes": _arguments("frameId", frameId=_NUMBER),
    "setExpression": _arguments(
        "expression", "value", expression=_CODE, value=_CODE, frameId=_NUMBER, format=_FORMAT
    ),
    "setVariable": _arguments(
        "variablesReference",
        "name",
        "value",
        variablesReference=_NUMBER,
        name=_CODE,
        value=_CODE,
        format=_FORMAT,
    ),
    "source": _arguments(source=_OF_EDITOR, sourceReference=_NUMBER),
    "stackTrace": _arguments(
        "threadId", threadId=_NUMBER, startFrame=_NUMBER, levels=_NUMBER, format=_FORMAT
    ),
    "stepIn": _arguments("threadId", targetId=_NUMBER, **_STEP),
    "stepInTargets": _arguments("frameId", frameId=_NUMBER),
    "stepOut": _arguments("threadId", **_STEP),
    "variables": _arguments(
        "variablesReference",
        variablesReference=_NUMBER,
        filter=choice("indexed named"),
        start=_NUMBER,
        count=_NUMBER,
        format=_FORMAT,
    ),
    # These say what debuggees are to stop at: the relay keeps that, and puts it into each of them.
    "setBreakpoints": _arguments(
        "source",
        source=_OF_EDITOR,
        breakpoints=All(
            _arguments("line", line=_NUMBER, column=_NUMBER, logMessage=_CODE, **_CONDITIONS), 10_000
        ),
        lines=All(_NUMBER, 10_000),
        sourceModified=_FLAG,
    ),
    "setExceptionBreakpoints": _arguments(
        filters=All(_TEXT, 100),
        filterOptions=All(_arguments("filterId", filterId=_TEXT, condition=_CODE), 100),
        exceptionOptions=All(
            _arguments(
                path=All(_arguments(negate=_FLAG, names=All(_TEXT, 1_000)), 100),
                breakMode=choice("never always unhandled userUnhandled"),
            ),
            100,
        ),
    ),
    "setFunctionBreakpoints": _arguments(
        breakpoints=All(_arguments("name", name=_TEXT, **_CONDITIONS), 10_000)
    ),
}


def arguments_of(command: str, arguments: Message) -> Message | None:
    """Rebuilds an editor's arguments for a debuggee; None where the request is not one for debuggees.

    Raises:
        NotDap: an argument is not what DAP has there.
    """
    rule = REQUESTS.get(command)
    return rule.take(arguments, "") if rule is not None else None
