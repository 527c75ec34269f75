"""What the user of the terminal debugger looks at: one stopped task, its frames, one of them selected."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from bootstrap.console import Console
from bootstrap.debug import listing, stops
from bootstrap.debug.background import Call
from bootstrap.debug.breakpoints import Breakpoints
from bootstrap.debug.client import Client
from bootstrap.debug.session import Attached, Discovery
from bootstrap.debug.stops import Frame
from bootstrap.errors import InvalidArgument, RequestFailed

_AROUND = 5  # lines of source above and below the current one


class View:
    """Shows, and answers what commands are for.

    Attributes:
        attached: the task that commands are for, stopped or not; None where there is none.
        frames: of its stop, innermost first.
    """

    def __init__(self, discovery: Discovery, console: Console, call: Call) -> None:
        self.attached: Attached | None = None
        self.frames: list[Frame] = []
        self.breakpoints = Breakpoints(self.shown)
        self._discovery = discovery
        self._console = console
        self._call = call
        self._selected = 0
        self._text = ""  # of the selected frame's file
        self._listed = 0  # the last line that `list` showed

    def standing(self) -> Attached:
        """The task that commands are for, which is stopped.

        Raises:
            InvalidArgument: none is.
        """
        if self.attached is None or self.attached.stop is None:
            raise InvalidArgument(
                "no task is stopped here", hint="`tasks` lists them, `task N` takes one, `continue` waits"
            )
        return self.attached

    @property
    def client(self) -> Client:
        return self.standing().client

    @property
    def frame(self) -> Frame:
        self.standing()
        if not self.frames:
            raise InvalidArgument("there is no frame here", hint="`continue` goes on")
        return self.frames[self._selected]

    def shown(self, path: str) -> str:
        """A debuggee's path as the user knows it: the local file where it maps."""
        return self._discovery.local_path(path) or path

    def arrive(self, attached: Attached) -> None:
        """Makes a stopped task the one that commands are for, and shows where it stands."""
        stop = attached.stop
        assert stop is not None, "only a stopped task is shown"
        self.attached, self.frames = attached, []
        self.frames = self._call(stops.frames(stop))
        if self.frames:
            attached.task = self._call(stops.task_name(stop, self.frames[0]))
        why = f"{stop.reason}: {stop.text}" if stop.text else stop.reason
        title = listing.plain(f"{attached.title} stopped ({why})")
        self._console.result(listing.header(title, colour=self._console.colour))
        if self.frames:
            self.select(0)

    def move(self, by: int) -> None:
        """`up` and `down`."""
        _ = self.frame
        index = self._selected + by
        if 0 <= index < len(self.frames):
            self.select(index)
        else:
            self._console.event("the innermost frame" if index < 0 else "the outermost frame")

    def select(self, index: int) -> None:
        self._selected = index
        frame = self.frame
        self._text = self._call(stops.source(self.client, frame))
        if not self._text:
            with suppress(OSError, UnicodeError):
                self._text = Path(self.shown(frame.path)).read_text(encoding="utf-8")
        self._console.result(listing.plain(f"{self.shown(frame.path)}:{frame.line} in {frame.function}"))
        self._listed = 0
        self.list("")

    def list(self, rest: str, *, more: bool = False) -> None:
        """`list [LINE]`; `more` goes on after the lines that were shown last."""
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
            self._console.event(f"the source of {self.shown(frame.path)} is nowhere to be had")
        elif first > lines:
            self._console.event("the end of the file")
        else:
            self._console.result(
                listing.source(
                    self._text,
                    frame.line,
                    first=first,
                    last=last,
                    colour=self._console.colour,
                    breakpoints=self.breakpoints.lines(self.standing().debuggee.worker_id, frame.path),
                )
            )
            self._listed = min(last, lines)

    def where(self) -> None:
        _ = self.frame
        shown = {frame.path: self.shown(frame.path) for frame in self.frames}
        self._console.result(listing.stack(self.frames, self._selected, shown))

    def locals(self) -> None:
        self._console.result(listing.variables(self._call(stops.variables(self.client, self.frame))))

    def evaluate(self, text: str, *, statement: bool) -> None:
        """`p EXPR`, or `! STATEMENT`; what it raises is shown."""
        frame = self.frame
        if not text:
            raise InvalidArgument("nothing to evaluate", hint="`p EXPR`, such as `p len(rows)`")
        work = stops.execute if statement else stops.evaluate
        try:
            answer = self._call(work(self.client, frame, text))
        except RequestFailed as error:
            self._console.event(listing.plain(error.message))
            return
        if answer:
            self._console.result(listing.plain(answer))
