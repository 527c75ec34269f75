"""Schemas of debuggees' messages: each field, with its type and its bound.

A debuggee is not trusted: it runs any submitted program. None of its messages is forwarded unchanged.
Events and the bodies of responses are rebuilt from these tables, and so are the arguments of editors'
requests (`schemas`); other fields are dropped. On purpose this drops data on which an editor would act:
names of programs and commands (`Source.origin`, `adapterData`, VS Code's `__vscodeVariableMenuContext`),
links (`url`), memory addresses, custom events of extensions.
Source: https://microsoft.github.io/debug-adapter-protocol/specification
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rayside.dap.framing import Message
from rayside.relay.schemas import (
    Exact,
    Flag,
    Many,
    NotDap,
    Number,
    Printed,
    Record,
    Rule,
    Text,
    choice,
    record,
)
from rayside.worker.calls import EVENT as RETRIED
from rayside.worker.children import EVENT as CHILD
from rayside.worker.evaluated.prints import EVENT as PRINTED
from rayside.worker.evaluated.reached import EVENT as REACHED
from rayside.worker.evaluated.stepped_calls import EVENT as REMOTE_CALL
from rayside.worker.evaluated.stepped_calls import MOST_FRAMES
from rayside.worker.evaluated.thread_stacks import LONGEST as LONGEST_NAME
from rayside.worker.evaluated.thread_stacks import MOST as MOST_THREADS
from rayside.worker.evaluated.thread_stacks import MOST_FRAMES as MOST_FRAMES_SHOWN
from rayside.worker.handshake import AUTHORIZE, CHALLENGE, DEBUG, LONGEST_USER

# Limit of a debuggee's message, in bytes: it may contain a large value that a user copies. The relay has only
# 256 MiB of memory, too little for a list of a hundred million.
LONGEST = 4 * 1024 * 1024
_FLAG, _NUMBER = Flag(), Number()
# pydevd uses addresses of objects as ids.
_ID = Number(most=2**63 - 1)
_WORD, _NAME, _PATH = Text(40), Text(500), Text(4_096)
_SENTENCE, _VALUE, _RESULT = Text(4_000, lines=True), Text(70_000, lines=True), Text(4_000_000, lines=True)
# pydevd appends this, and the name of a function, to the name of an exception.
_PAUSED_ELSEWHERE = "       (note: full exception trace is shown but execution is paused at: "
_COUNTS: dict[str, Rule] = {"namedVariables": _NUMBER, "indexedVariables": _NUMBER}
_PLACE: dict[str, Rule] = dict.fromkeys(("line", "column", "endLine", "endColumn"), _NUMBER)

_SOURCE = record(
    name=_NAME,
    path=_PATH,
    sourceReference=_ID,
    presentationHint=choice("normal emphasize deemphasize"),
)
_HINT = record(
    kind=choice("property method class data event baseClass innerClass interface mostDerivedClass virtual"),
    attributes=Many(
        choice("static constant readOnly rawString hasObjectId canHaveObjectId hasSideEffects"), 10
    ),
    visibility=choice("public private protected internal final"),
)
_SHOWN: dict[str, Rule] = {
    "type": _NAME,
    "presentationHint": _HINT,
    "variablesReference": _ID,
    **_COUNTS,
}
_CHILD = record("pid", "port", pid=Number(least=1), port=Number(least=1, most=65_535))
_BREAKPOINT = record(id=_ID, verified=_FLAG, message=_SENTENCE, **_PLACE)
_DETAILS_FIELDS: dict[str, Rule] = {
    "message": _SENTENCE,
    "typeName": _NAME,
    "fullTypeName": _NAME,
    "stackTrace": _VALUE,
}


def _details(depth: int) -> Record:
    inner = {"innerException": Many(_details(depth - 1), 10)} if depth else {}
    return Record({**_DETAILS_FIELDS, **inner})


# Schemas of events. Others are custom events, or concern one process: an editor would apply them to the whole
# cluster.
EVENTS: dict[str, Record] = {
    "stopped": record(
        "reason",
        "threadId",
        reason=_WORD,
        description=_SENTENCE,
        text=Text(4_000, lines=True, until=_PAUSED_ELSEWHERE),
        threadId=_ID,
        hitBreakpointIds=Many(_ID, 1_000),
    ),
    "continued": record(threadId=_ID, allThreadsContinued=_FLAG),
    "thread": record("threadId", reason=_WORD, threadId=_ID),
    # `output` is strict: an event with an unlisted category (`telemetry`) must not pass without it.
    "output": Record(
        {
            "category": choice("console stdout stderr important"),
            "output": Printed(20_000),
            "source": _SOURCE,
            "line": _NUMBER,
            "column": _NUMBER,
        },
        frozenset({"output"}),
        strict=True,
    ),
    "initialized": record(),
    "terminated": record(),
    # Our event (evaluated/reached.py) for hits and changes of a breakpoint; it is not forwarded to editors.
    REACHED: record(
        "key",
        "what",
        key=_NUMBER,
        what=choice("hit gone loaded message error leftOut file"),
        number=_NUMBER,
        text=_SENTENCE,
        task=_NAME,
    ),
    # Our event (evaluated/prints.py) with a printed line, or the number of lines that were left out.
    PRINTED: record(
        "category",
        category=choice("stdout stderr"),
        output=Printed(20_000),
        path=_PATH,
        line=_NUMBER,
        task=_NAME,
        leftOut=_NUMBER,
    ),
    # Our event (rayside/worker/children.py): this process has started another one.
    CHILD: _CHILD,
    # Our event (rayside/worker/calls.py) with the outcome of a retry.
    RETRIED: record(
        *("key", "outcome", "number"),
        key=_NUMBER,
        number=_NUMBER,
        outcome=choice("returned raised"),
        why=_SENTENCE,
    ),
    # Our event (evaluated/stepped_calls.py) for the task that a step goes into.
    REMOTE_CALL: record(
        "key",
        "what",
        key=_NUMBER,
        what=choice("call called entered gone"),
        number=_NUMBER,
        function=Exact(500),
        task=_NAME,
        taskId=Exact(64),
        threadId=_ID,
        frames=Many(record("name", name=_NAME, source=record(path=_PATH), **_PLACE), MOST_FRAMES),
    ),
}

# Schemas of response bodies, by the command of the request.
RESPONSES: dict[str, Record] = {
    "completions": record(
        targets=Many(
            record(
                "label",
                label=Exact(500),
                text=Exact(500),
                sortText=Exact(500),
                detail=_NAME,
                type=choice(
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
    "continue": record(allThreadsContinued=_FLAG),
    "evaluate": record("result", result=_RESULT, **_SHOWN),
    "exceptionInfo": record(
        "exceptionId",
        exceptionId=Text(500, until=_PAUSED_ELSEWHERE),
        description=_SENTENCE,
        breakMode=choice("never always unhandled userUnhandled"),
        details=_details(3),
    ),
    "goto": record(),
    # Answered by our listener, before pydevd (rayside/worker/handshake.py).
    "initialize": record(**{CHALLENGE: record("nonce", nonce=Exact(64))}),
    "gotoTargets": record(targets=Many(record("id", id=_ID, label=_NAME, **_PLACE), 1_000)),
    "next": record(),
    "pause": record(),
    AUTHORIZE: record("proof", proof=Exact(64), job=Exact(40), submission=_NAME, user=Text(LONGEST_USER)),
    DEBUG: record("taken", taken=_FLAG, user=Text(LONGEST_USER), children=Many(_CHILD, 1_000)),
    "scopes": record(
        scopes=Many(
            record(
                "name",
                "variablesReference",
                name=_NAME,
                presentationHint=choice("arguments locals registers returnValue"),
                expensive=_FLAG,
                variablesReference=_ID,
                source=_SOURCE,
                **_COUNTS,
                **_PLACE,
            ),
            100,
        )
    ),
    "setBreakpoints": record(breakpoints=Many(_BREAKPOINT, 10_000, gap={})),
    "setExceptionBreakpoints": record(breakpoints=Many(_BREAKPOINT, 1_000, gap={})),
    "setExpression": record("value", value=_VALUE, **_SHOWN),
    "setFunctionBreakpoints": record(breakpoints=Many(_BREAKPOINT, 10_000, gap={})),
    "setVariable": record("value", value=_VALUE, **_SHOWN),
    "source": record("content", content=_RESULT),
    "stackTrace": record(
        stackFrames=Many(
            record(
                "id",
                id=_ID,
                name=_NAME,
                source=_SOURCE,
                presentationHint=choice("normal label subtle"),
                **_PLACE,
            ),
            5_000,
        ),
        totalFrames=_NUMBER,
    ),
    "stepIn": record(),
    "stepInTargets": record(targets=Many(record("id", id=_ID, label=_NAME, **_PLACE), 1_000)),
    "stepOut": record(),
    "threads": record(threads=Many(record("id", id=_ID, name=_NAME), 10_000)),
    "variables": record(
        variables=Many(
            record(
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
_NOTHING = record()


def event(message: Message) -> Message | None:
    """Rebuilds a debuggee's event: its `event` and `body`; None if it is unknown or not valid DAP."""
    name, body = message.get("event"), message.get("body")
    rule = EVENTS.get(name) if isinstance(name, str) else None
    if rule is None:
        return None
    try:
        return {"event": name, "body": rule.take({} if body is None else body, "")}
    except NotDap:
        return None


def response(command: str, message: Message) -> Message:
    """Rebuilds a debuggee's response to a command: `success`, and `body` or, if it failed, `message`."""
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


# Limit of files in all stacks for which the editor's path is looked up.
_FILES = 1_000
_SHORT = Text(LONGEST_NAME)


@dataclass(frozen=True)
class Frame:
    """Frame of a stack.

    Attributes:
        file: the editor's path if `local`, else the process's path.
        own: whether it is user code.
    """

    file: str
    local: bool
    line: int
    function: str
    own: bool


class _FrameRule:
    """Schema of a frame from thread_stacks.py; cached, since a thousand processes have the same frames."""

    def __init__(self, local: Callable[[str], str | None]) -> None:
        self._local = local
        self._known: dict[tuple[object, ...], Frame] = {}
        self._files: dict[str, str | None] = {}

    def take(self, value: object, place: str) -> Frame:
        """Returns the frame with the editor's path. Raises NotDap."""
        if not isinstance(value, list):
            raise NotDap(f"`{place}` has to be a list")
        key = tuple(value)
        try:
            if key not in self._known:
                file, line, function, own = key
                shown = _SHORT.take(file, place)
                local = self._local_of(file, shown)
                self._known[key] = Frame(
                    local or shown,
                    local is not None,
                    _NUMBER.take(line, place),
                    _SHORT.take(function, place),
                    _FLAG.take(own, place),
                )
            return self._known[key]
        except (TypeError, ValueError) as error:
            raise NotDap(f"`{place}` is no frame") from error

    def _local_of(self, file: str, shown: str) -> str | None:
        # A path that is shown differently from its value is no file of the editor.
        if file != shown or (file not in self._files and len(self._files) >= _FILES):
            return None
        if file not in self._files:
            self._files[file] = self._local(file)
        return self._files[file]


def stacks_rule(local: Callable[[str], str | None]) -> Rule:
    """Returns the schema of a debuggee's stacks; `local` returns the editor's path for a debuggee's."""
    thread = record(
        *("name", "stopped", "frames"),
        name=_SHORT,
        stopped=_FLAG,
        frames=Many(_FrameRule(local), MOST_FRAMES_SHOWN + 1),  # one more for the number of frames left out
    )
    return record("threads", threads=Many(thread, MOST_THREADS), more=_NUMBER)
