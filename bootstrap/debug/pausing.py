"""Leaves a stopped task so that it is paused again, and waits for the next debugger.

debugpy lets a task run on when its client goes. But where the task was stopped by a `breakpoint()`
call and has not moved since, it can be sent back to that call (DAP's `goto`) before the client goes:
it then runs the call again, which pauses it and has Ray list it.
"""

from __future__ import annotations

import ast

from bootstrap.debug import stops
from bootstrap.debug.session import Stop
from bootstrap.errors import RequestFailed

_CALLS = {"breakpoint()", "ray.util.debugpy.set_trace()", "ray.util.pdb.set_trace()"}


async def return_to_breakpoint(stop: Stop) -> bool:
    """Sends the thread back to the `breakpoint()` call it stands at; False where that can't be done.

    No statement but that call is run, or run again. One trace remains: on Python 3.12 and later a jump
    gives the local variables that have no value yet the value None.
    """
    attached = stop.attached
    client = attached.client
    try:
        frame = (await stops.frames(stop))[0]
        text = await stops.source(client, frame)
        line = call_to_repeat(text, frame.line, just_called=stop.by_call)
        if line is None:
            return False
        try:
            await attached.goto(frame.path, line)
        except RequestFailed:
            # A first stop in a new process (Python 3.11) still stands inside the call, from where Python
            # can't jump. One `next` leaves the call, unless nothing follows it in its function.
            if line != frame.line or not runs_on_in_function(text, line):
                return False
            await attached.move("next", stop.thread_id)
            moved = (await stops.frames(await attached.stopped(5.0)))[0]
            if (moved.path, moved.function) != (frame.path, frame.function):
                return False
            await attached.goto(frame.path, line)
    except (RequestFailed, IndexError):
        return False
    return True


def call_to_repeat(text: str, line: int, *, just_called: bool) -> int | None:
    """The line of the `breakpoint()` call to go back to from `line`, None where there is none for sure.

    Args:
        just_called: whether a `breakpoint()` call was what stopped there. Python may then stand at
            the call, or at the statement that follows it.
    """
    calls = _calls(text)
    if any(call.lineno == line for call, _ in calls):
        return line
    if not just_called:
        return None
    before = [call.lineno for call, followers in calls if any(line in span for span in followers)]
    return before[0] if len(before) == 1 else None


def runs_on_in_function(text: str, line: int) -> bool:
    """Whether another line of the same function always runs after the `breakpoint()` call at `line`."""
    return any(call.lineno == line and followers for call, followers in _calls(text))


def _calls(text: str) -> list[tuple[ast.stmt, list[range]]]:
    """Statements that are just a `breakpoint()` call, alone on their line, and the lines that may follow."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return []
    lines = text.splitlines()
    found: list[tuple[ast.stmt, list[range]]] = []

    def visit(body: list[ast.stmt], after: list[range]) -> None:
        for statement, following in zip(body, [*body[1:], None][: len(body)], strict=True):
            then = [_header(following)] if following is not None else after
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                alone = lines[statement.lineno - 1].split("#")[0].strip().rstrip(";").strip()
                if ast.unparse(statement) in _CALLS and alone == ast.unparse(statement):
                    found.append((statement, then))
            elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                visit(statement.body, [])
            elif isinstance(statement, ast.For | ast.AsyncFor | ast.While):
                again = [_header(statement), _header(statement.body[0])]
                visit(statement.body, again)
                visit(statement.orelse, then)
            elif isinstance(statement, ast.With | ast.AsyncWith):
                visit(statement.body, [_header(statement)])
            elif isinstance(statement, ast.If):
                visit(statement.body, then)
                visit(statement.orelse, then)
            elif isinstance(statement, ast.Try):
                last = [_header(statement.finalbody[0])] if statement.finalbody else then
                visit(statement.body, [_header(statement.orelse[0])] if statement.orelse else last)
                for clause in statement.handlers:
                    visit(clause.body, last)
                visit(statement.orelse, last)
                visit(statement.finalbody, then)
            elif isinstance(statement, ast.Match):
                for case in statement.cases:
                    visit(case.body, then)

    visit(tree.body, [])
    return found


def _header(statement: ast.stmt) -> range:
    """The lines of a statement before its body, any of which may be the first to run."""
    first = min([statement.lineno, *[d.lineno for d in getattr(statement, "decorator_list", [])]])
    body = getattr(statement, "body", None)
    last = body[0].lineno - 1 if isinstance(body, list) else statement.end_lineno or statement.lineno
    return range(first, max(first, last) + 1)
