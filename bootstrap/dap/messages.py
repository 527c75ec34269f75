"""Has tables of what editors and debuggees may say to each other: each field, with its type and its bound.

A debuggee is a stranger: it runs whatever somebody submitted. Nothing that it sends is passed on as it came.
Events and the bodies of responses are built anew from these tables, and so are the arguments of editors'
requests; what is not in them is left out. On purpose that leaves out what an editor would act upon: names of
programs and commands (`Source.origin`, `adapterData`, VS Code's `__vscodeVariableMenuContext`), links
(`url`), addresses of memory, extensions' own events.
Source: https://microsoft.github.io/debug-adapter-protocol/specification
"""

from __future__ import annotations

from bootstrap.dap.framing import Message
from bootstrap.dap.rules import (
    All,
    Choice,
    Exact,
    Flag,
    Many,
    NotDap,
    Number,
    Printed,
    Record,
    Rule,
    Text,
)
from bootstrap.hook.evaluated.prints import EVENT as PRINTED
from bootstrap.hook.evaluated.reached import EVENT as REACHED


def _choice(words: str) -> Choice:
    return Choice(frozenset(words.split()))


def _record(*needs: str, **fields: Rule) -> Record:
    return Record(fields, frozenset(needs))


# --- what debuggees say ------------------------------------------------------------------

_FLAG, _NUMBER = Flag(), Number()
# pydevd takes the addresses of objects for ids.
_ID = Number(most=2**63 - 1)
_WORD, _NAME, _PATH = Text(40), Text(500), Text(4_096)
_SENTENCE, _VALUE, _RESULT = Text(4_000, lines=True), Text(70_000, lines=True), Text(4_000_000, lines=True)
# pydevd adds this, and the name of a function, to the name of an exception.
_PAUSED_ELSEWHERE = "       (note: full exception trace is shown but execution is paused at: "
_COUNTS: dict[str, Rule] = {"namedVariables": _NUMBER, "indexedVariables": _NUMBER}
_PLACE: dict[str, Rule] = dict.fromkeys(("line", "column", "endLine", "endColumn"), _NUMBER)

_SOURCE = _record(
    name=_NAME,
    path=_PATH,
    sourceReference=_ID,
    presentationHint=_choice("normal emphasize deemphasize"),
)
_HINT = _record(
    kind=_choice("property method class data event baseClass innerClass interface mostDerivedClass virtual"),
    attributes=Many(
        _choice("static constant readOnly rawString hasObjectId canHaveObjectId hasSideEffects"), 10
    ),
    visibility=_choice("public private protected internal final"),
)
_SHOWN: dict[str, Rule] = {
    "type": _NAME,
    "presentationHint": _HINT,
    "variablesReference": _ID,
    **_COUNTS,
}
_BREAKPOINT = _record(id=_ID, verified=_FLAG, message=_SENTENCE, **_PLACE)
_DETAILS_FIELDS: dict[str, Rule] = {
    "message": _SENTENCE,
    "typeName": _NAME,
    "fullTypeName": _NAME,
    "stackTrace": _VALUE,
}


def _details(depth: int) -> Record:
    inner = {"innerException": Many(_details(depth - 1), 10)} if depth else {}
    return Record({**_DETAILS_FIELDS, **inner})


# An event that is not listed here is a debuggee's own, or concerns one process: an editor would take it for
# the whole cluster's.
EVENTS: dict[str, Record] = {
    "stopped": _record(
        "reason",
        "threadId",
        reason=_WORD,
        description=_SENTENCE,
        text=Text(4_000, lines=True, until=_PAUSED_ELSEWHERE),
        threadId=_ID,
        hitBreakpointIds=Many(_ID, 1_000),
    ),
    "continued": _record(threadId=_ID, allThreadsContinued=_FLAG),
    "thread": _record("threadId", reason=_WORD, threadId=_ID),
    # `output` is strict, for a category that is not listed (`telemetry`) must not pass as none.
    "output": Record(
        {
            "category": _choice("console stdout stderr important"),
            "output": Printed(20_000),
            "source": _SOURCE,
            "line": _NUMBER,
            "column": _NUMBER,
        },
        frozenset({"output"}),
        strict=True,
    ),
    "initialized": _record(),
    "terminated": _record(),
    # Our event (of inside/) says what became of a breakpoint. It is not sent on to editors as it is.
    REACHED: _record(
        "key",
        "what",
        key=_NUMBER,
        what=_choice("hit loaded message error leftOut file"),
        number=_NUMBER,
        text=_SENTENCE,
        task=_NAME,
    ),
    # Our event (of evaluated/prints.py) has a line that was printed, or how many were not sent.
    PRINTED: _record(
        "category",
        category=_choice("stdout stderr"),
        output=Printed(20_000),
        path=_PATH,
        line=_NUMBER,
        task=_NAME,
        leftOut=_NUMBER,
    ),
}

# The bodies of responses, by the command of the request.
RESPONSES: dict[str, Record] = {
    "completions": _record(
        targets=Many(
            _record(
                "label",
                label=Exact(500),
                text=Exact(500),
                sortText=Exact(500),
                detail=_NAME,
                type=_choice(
                    "method function constructor field variable class interface module property unit value"
                    " enum keyword snippet text color file reference customcolor"
                ),
                start=_NUMBER,
                length=_NUMBER,
                selectionStart=_NUMBER,
                selectionLength=_NUMBER,
            ),
            5_000,
        )
    ),
    "continue": _record(allThreadsContinued=_FLAG),
    "evaluate": _record("result", result=_RESULT, **_SHOWN),
    "exceptionInfo": _record(
        "exceptionId",
        exceptionId=Text(500, until=_PAUSED_ELSEWHERE),
        description=_SENTENCE,
        breakMode=_choice("never always unhandled userUnhandled"),
        details=_details(3),
    ),
    "goto": _record(),
    # Our listener answers this, before pydevd does (bootstrap/hook/rayside_hook/handshake.py).
    "initialize": _record(rayside=_record("nonce", nonce=Exact(64))),
    "gotoTargets": _record(targets=Many(_record("id", id=_ID, label=_NAME, **_PLACE), 1_000)),
    "next": _record(),
    "pause": _record(),
    "raysideAuthorize": _record("proof", proof=Exact(64)),
    "scopes": _record(
        scopes=Many(
            _record(
                "name",
                "variablesReference",
                name=_NAME,
                presentationHint=_choice("arguments locals registers returnValue"),
                expensive=_FLAG,
                variablesReference=_ID,
                source=_SOURCE,
                **_COUNTS,
                **_PLACE,
            ),
            100,
        )
    ),
    "setBreakpoints": _record(breakpoints=Many(_BREAKPOINT, 10_000, gap={})),
    "setExceptionBreakpoints": _record(breakpoints=Many(_BREAKPOINT, 1_000, gap={})),
    "setExpression": _record("value", value=_VALUE, **_SHOWN),
    "setFunctionBreakpoints": _record(breakpoints=Many(_BREAKPOINT, 10_000, gap={})),
    "setVariable": _record("value", value=_VALUE, **_SHOWN),
    "source": _record("content", content=_RESULT),
    "stackTrace": _record(
        stackFrames=Many(
            _record(
                "id",
                id=_ID,
                name=_NAME,
                source=_SOURCE,
                presentationHint=_choice("normal label subtle"),
                **_PLACE,
            ),
            5_000,
        ),
        totalFrames=_NUMBER,
    ),
    "stepIn": _record(),
    "stepInTargets": _record(targets=Many(_record("id", id=_ID, label=_NAME, **_PLACE), 1_000)),
    "stepOut": _record(),
    "threads": _record(threads=Many(_record("id", id=_ID, name=_NAME), 10_000)),
    "variables": _record(
        variables=Many(
            _record(
                "name",
                "value",
                name=_NAME,
                value=_VALUE,
                evaluateName=Exact(4_000),
                **_SHOWN,
            ),
            20_000,
        )
    ),
}
_NOTHING = _record()


def event(message: Message) -> Message | None:
    """Rebuilds a debuggee's event: its `event` and `body`; None where it is not known, or is not DAP's."""
    name, body = message.get("event"), message.get("body")
    rule = EVENTS.get(name) if isinstance(name, str) else None
    if rule is None:
        return None
    try:
        return {"event": name, "body": rule.take({} if body is None else body, "")}
    except NotDap:
        return None


def response(command: str, message: Message) -> Message:
    """Rebuilds a debuggee's response to a command: `success`, and `body` or, where it says no, `message`."""
    body = message.get("body")
    if message.get("success") is not True:
        error = body.get("error") if isinstance(body, dict) else None
        reasons = [error.get("format") if isinstance(error, dict) else None, message.get("message")]
        reason = next((text for text in reasons if isinstance(text, str) and text), "no reason was given")
        return {"success": False, "message": _SENTENCE.take(reason, "message")}
    try:
        rule = RESPONSES.get(command, _NOTHING)
        return {"success": True, "body": rule.take({} if body is None else body, "")}
    except NotDap as error:
        return {"success": False, "message": f"what the debuggee answered to `{command}` is not DAP: {error}"}


# --- what editors ask for ----------------------------------------------------------------


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
_STEP: dict[str, Rule] = {**_THREAD, "granularity": _choice("statement line instruction")}
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
        filter=_choice("indexed named"),
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
                breakMode=_choice("never always unhandled userUnhandled"),
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
