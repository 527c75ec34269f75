"""View of the terminal debugger: a stopped task, its frames, one of them selected."""

from __future__ import annotations

from rayside.client import listing, stops
from rayside.client.events import Stop
from rayside.client.session import Session
from rayside.client.stops import Frame
from rayside.console import Console
from rayside.dap.drawn_values import drawn
from rayside.errors import InvalidArgument, RequestFailed
from rayside.event_loop import Call

# Timeout in seconds of `compare`: the relay waits for all tasks for up to 12.
_COMPARING = 20.0
_AROUND = 5  # lines of source above and below the current one


class View:
    """View of the current task, to which commands apply.

    Attributes:
        stop: the last stop of the current task; None if there is no current task.
        frames: the frames of that stop, innermost first.
    """

    def __init__(self, session: Session, console: Console, call: Call) -> None:
        self.stop: Stop | None = None
        self.frames: list[Frame] = []
        self._session = session
        self._console = console
        self._call = call
        self._selected = 0
        self._text = ""  # the text of the selected frame's file
        self._listed = 0  # the last line that `list` showed
        self._knows_retry = False

    def current_stop(self) -> Stop:
        """Returns the current task's stop.

        Raises:
            InvalidArgument: there is none, or its task has resumed.
        """
        if self.stop is None or self._session.stops.get(self.stop.thread_id) is not self.stop:
            raise InvalidArgument(
                "no task is stopped here", hint="`tasks` lists them, `task N` takes one, `continue` waits"
            )
        return self.stop

    @property
    def frame(self) -> Frame:
        self.current_stop()
        if not self.frames:
            raise InvalidArgument("there is no frame here", hint="`continue` goes on")
        return self.frames[self._selected]

    def arrive(self, stop: Stop) -> None:
        """Makes a stopped task the current one, and shows its place."""
        self.stop, self.frames = stop, []
        self.frames = self._call(stops.frames(self._session.client, stop))
        self._console.result(f"{self._session.title(stop)} stopped ({stop.why})", style="header")
        if self.frames:
            self.select(0)
        if not self._knows_retry and any(frame.can_restart for frame in self.frames):
            self._knows_retry = True
            self._console.event(
                "`retry` runs this task again with your edited files; side effects happen again"
            )

    def move(self, by: int) -> None:
        """Selects another frame, for `up` and `down`."""
        _ = self.frame
        index = self._selected + by
        while 0 <= index < len(self.frames) and self.frames[index].is_label:
            index += by
        if 0 <= index < len(self.frames):
            self.select(index)
        else:
            self._console.event("the innermost frame" if index < 0 else "the outermost frame")

    def select(self, index: int) -> None:
        self._selected = index
        frame = self.frame
        self._text = self._call(stops.source(self._session.client, frame))
        self._console.result(f"{frame.path}:{frame.line} in {frame.function}")
        self._listed = 0
        self.list("")

    def list(self, rest: str, *, more: bool = False) -> None:
        """Shows source, for `list [LINE]`; `more` continues after the last shown line."""
        frame = self.frame
        if rest and not (rest.isascii() and rest.isdecimal()):
            raise InvalidArgument(f"not a line: {rest}", hint="`list` or `list LINE`")
        if more and self._listed:
            first, last = self._listed + 1, self._listed + 1 + 2 * _AROUND
        else:
            centre = int(rest) if rest else frame.line
            first, last = centre - _AROUND, centre + _AROUND
        lines = len(self._text.splitlines())
        if not lines:
            self._console.event(f"the source of {frame.path} is nowhere to be had")
        elif first > lines:
            self._console.event("the end of the file")
        else:
            breakpoints = self._session.breakpoints.lines(frame.path)
            shown = listing.source(self._text, frame.line, first=first, last=last, breakpoints=breakpoints)
            for line, current in shown:
                self._console.result(line, style="current" if current else "")
            self._listed = min(last, lines)

    def where(self) -> None:
        _ = self.frame
        self._console.result(listing.stack(self.frames, self._selected))

    def locals(self) -> None:
        self._console.result(listing.variables(self._call(stops.variables(self._session.client, self.frame))))

    def evaluate(self, text: str, *, statement: bool) -> None:
        """Evaluates `p EXPR` or runs `! STATEMENT`; exceptions are shown."""
        frame = self.frame
        if not text:
            raise InvalidArgument("nothing to evaluate", hint="`p EXPR`, such as `p len(rows)`")
        work = stops.execute if statement else stops.evaluate
        try:
            answer = self._call(work(self._session.client, frame, text))
        except RequestFailed as error:
            self._console.event(error.message)
            return
        if answer:
            self._console.result(answer)

    def compare(self, expression: str) -> None:
        """Shows an expression's values in all stopped tasks."""
        if not expression:
            raise InvalidArgument("nothing to compare", hint="`compare EXPR`, such as `compare loss`")
        arguments = {"expression": expression}
        answer = self._call(self._session.client.request("compare", arguments, timeout=_COMPARING))
        for row in drawn(answer):
            self._console.result(row)
