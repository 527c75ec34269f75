"""DAP server for a recorded failure, shown as a process that stopped where it failed. Nothing runs.

Source: https://microsoft.github.io/debug-adapter-protocol/specification
"""

from __future__ import annotations

import asyncio
import hmac
import re
from collections.abc import Callable, Iterator
from typing import Any

from rayside.capsule_file import Capsule, Frame, Variable
from rayside.dap.framing import Message
from rayside.relay.editor import Editor
from rayside.relay.schemas import REQUESTS, Refused

_THREAD = 1
_NAME = re.compile(r"[A-Za-z_]\w*")
_CAPABILITIES: Message = {
    "supportsConfigurationDoneRequest": True,
    "supportsExceptionInfoRequest": True,
    "supportsEvaluateForHovers": True,
    "supportsDelayedStackTraceLoading": True,
    "supportTerminateDebuggee": False,
    "exceptionBreakpointFilters": [],
}
REFUSAL = (
    "this is a recorded failure, and nothing of it runs: `rayside replay --run` calls the function again"
)
_HOW = {"cause": "caused by", "context": "while handling", "group": "in the group"}
# Limits: connections, and seconds for a new one to send the token.
_MOST_CONNECTIONS, _SHOWING = 16, 10.0


class Replayed:
    """DAP server for one capsule.

    Args:
        token: required in `attach`.

    Attributes:
        ended: set when an editor continues or disconnects.
    """

    def __init__(self, capsule: Capsule, token: str) -> None:
        self._capsule, self._token = capsule, token
        self._editors: set[Editor] = set()
        self._server: asyncio.Server | None = None
        self.ended = asyncio.Event()
        # Frames, and lists of variables, by their DAP ids.
        self._frames: dict[int, Frame] = {}
        self._parents: list[tuple[Variable, ...]] = []
        self._numbers: dict[int, int] = {}
        self._sources: list[str] = []
        self._stack = list(self._stack_frames())

    async def serve(self, port: int) -> int:
        """Starts listening on 127.0.0.1; returns the port. Raises OSError."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        await asyncio.gather(*(editor.close() for editor in self._editors))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        editor = Editor(reader, writer)
        if len(self._editors) >= _MOST_CONNECTIONS:
            editor.drop()
            return
        self._editors.add(editor)
        waiting = asyncio.get_running_loop().call_later(
            _SHOWING, lambda: None if editor.admitted else editor.drop()
        )
        try:
            async for request in editor.requests():
                self._answer(editor, request)
                await editor.taken()
                if request["command"] == "disconnect":
                    break
        finally:
            waiting.cancel()
            self._editors.discard(editor)
            if editor.admitted:
                self.ended.set()
            await editor.close()

    def _answer(self, editor: Editor, request: Message) -> None:
        command, arguments = request["command"], request.get("arguments") or {}
        handlers: dict[str, Callable[[Message], Message | None]] = {
            "threads": lambda _: {"threads": [{"id": _THREAD, "name": self._title}]},
            "stackTrace": self._stack_trace,
            "scopes": self._scopes,
            "variables": self._variables,
            "source": self._source,
            "exceptionInfo": self._exception_info,
            "evaluate": self._evaluate,
            "setBreakpoints": self._set_breakpoints,
            "setFunctionBreakpoints": self._set_breakpoints,
            "setExceptionBreakpoints": lambda _: None,
            "continue": lambda _: {"allThreadsContinued": True},
            "configurationDone": lambda _: None,
        }
        if command == "initialize":
            editor.introduced(arguments)
            editor.respond(request, _CAPABILITIES)
        elif command == "attach":
            self._attach(editor, request, arguments)
        elif command == "disconnect":
            editor.respond(request)
        elif not editor.admitted:
            editor.refuse(request, "attach first, with the token")
        elif command not in handlers:
            # Editors also send requests of their own, such as debugpy's `debugpySystemInfo`.
            editor.refuse(request, REFUSAL, is_for_users=command in REQUESTS)
        else:
            try:
                editor.respond(request, handlers[command](arguments))
            except Refused as refused:
                editor.refuse(request, str(refused), is_for_users=False)
                return
            if command == "configurationDone":
                editor.event("stopped", self._stopped())
            elif command == "continue":
                editor.event("terminated")
                self.ended.set()

    def _attach(self, editor: Editor, request: Message, arguments: Message) -> None:
        token = arguments.get("token")
        if not isinstance(token, str) or not hmac.compare_digest(
            token.encode("utf-8", "replace"), self._token.encode()
        ):
            editor.refuse(request, "`token` is not the one of this replay")
            return
        editor.admitted = True
        editor.respond(request)
        editor.event("initialized")

    # --- answers -----------------------------------------------------------------

    @property
    def _title(self) -> str:
        return self._capsule.about["task"] or self._capsule.function["name"]

    def _stopped(self) -> Message:
        error, about = self._capsule.errors[0], self._capsule.about
        message = error.text.removeprefix(f"{error.type}: ")
        pid = int(about["pid"]) if about["pid"].isdecimal() else 0
        where = {"task": self._title, "pid": pid, "nodeIp": about["node"]}
        where["jobId"] = about["submission"] or about["job"]
        return {
            "reason": "exception",
            "threadId": _THREAD,
            "text": error.type,
            "description": message,
            "allThreadsStopped": True,
            "ray": where,
        }

    def _stack_frames(self) -> Iterator[Message]:
        texts: dict[str, int] = {}
        for error in self._capsule.errors:
            if error.how:
                label = f"{_HOW.get(error.how, error.how)}: {error.text}"
                number = len(self._frames) + 1_000_000
                yield {"id": number, "name": label, "line": 0, "column": 0, "presentationHint": "label"}
            for frame in error.frames:
                number = len(self._frames) + 1
                self._frames[number] = frame
                source: Message = {"name": frame.file.rpartition("/")[2], "path": frame.file}
                if frame.source:
                    if frame.file not in texts:
                        self._sources.append(frame.source)
                        texts[frame.file] = len(self._sources)
                    source["sourceReference"] = texts[frame.file]
                yield {
                    "id": number,
                    "name": frame.function,
                    "line": frame.line,
                    "column": 1,
                    "source": source,
                }

    def _stack_trace(self, arguments: Message) -> Message:
        start, levels = _number(arguments, "startFrame"), _number(arguments, "levels")
        some = self._stack[start : start + levels if levels else None]
        return {"stackFrames": some, "totalFrames": len(self._stack)}

    def _scopes(self, arguments: Message) -> Message:
        frame = self._frame(arguments)
        return {
            "scopes": [
                {"name": name, "expensive": False, "variablesReference": self._reference(variables)}
                for name, variables in (("Locals", frame.locals), ("Globals", frame.globals))
            ]
        }

    def _variables(self, arguments: Message) -> Message:
        number = _number(arguments, "variablesReference")
        if not 0 < number <= len(self._parents):
            raise Refused("there are no such variables")
        rows = self._parents[number - 1]
        start, count = _number(arguments, "start"), _number(arguments, "count")
        return {"variables": [self._shown(each) for each in rows[start : start + count if count else None]]}

    def _shown(self, variable: Variable) -> Message:
        return {
            "name": variable.name,
            "value": variable.value,
            "type": variable.type,
            "variablesReference": self._reference(variable.items) if variable.items else 0,
        }

    def _reference(self, variables: tuple[Variable, ...]) -> int:
        number = self._numbers.get(id(variables))
        if number is None:
            self._parents.append(variables)
            number = self._numbers[id(variables)] = len(self._parents)
        return number

    def _source(self, arguments: Message) -> Message:
        number = _number(arguments, "sourceReference")
        if not 0 < number <= len(self._sources):
            raise Refused("this source is not in the capsule")
        return {"content": self._sources[number - 1], "mimeType": "text/x-python"}

    def _exception_info(self, _: Message) -> Message:
        error = self._capsule.errors[0]
        rows = [
            f'  File "{frame.file}", line {frame.line}, in {frame.function}' for frame in error.frames[::-1]
        ]
        trace = "\n".join(["Traceback (most recent call last):", *rows, error.text])
        return {
            "exceptionId": error.type,
            "description": error.text,
            "breakMode": "unhandled",
            "details": {"typeName": error.type, "message": error.text, "stackTrace": trace},
        }

    def _evaluate(self, arguments: Message) -> Message:
        """Looks up a name. Expressions are refused, as they would run code."""
        name, frame = str(arguments.get("expression", "")).strip(), self._frame(arguments)
        if not _NAME.fullmatch(name):
            raise Refused(f"only names are looked up here: {REFUSAL}")
        for variable in (*frame.locals, *frame.globals):
            if variable.name == name:
                shown = self._shown(variable)
                return {"result": shown.pop("value"), **shown}
        raise Refused(f"this frame has no variable {name} that was recorded")

    @staticmethod
    def _set_breakpoints(arguments: Message) -> Message:
        wanted = arguments.get("breakpoints")
        number = len(wanted) if isinstance(wanted, list) else 0
        return {"breakpoints": [{"verified": False, "message": REFUSAL}] * min(number, 1_000)}

    def _frame(self, arguments: Message) -> Frame:
        frame = self._frames.get(_number(arguments, "frameId"))
        if frame is None:
            raise Refused("there is no such frame")
        return frame


def _number(arguments: Message, name: str) -> int:
    value: Any = arguments.get(name)
    return value if type(value) is int and value >= 0 else 0
