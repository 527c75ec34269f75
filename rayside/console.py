"""Console output; no other module prints. Live on a terminal, else a line per event, JSON on request.

Results go to standard output, progress and errors to standard error, so that a result can be
piped while its progress is shown. All output is sanitized here, and nowhere else: much of it comes
from the cluster, and a terminal obeys escape sequences in it.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TextIO

from rayside import plain
from rayside.default_folders import DEFAULT_NAME

if TYPE_CHECKING:
    from rich.live import Live

    from rayside.errors import RaysideError

# Outcomes of an event, and the mark of each on a terminal; the words have the same meaning, so
# nothing is lost without color.
_MARKS = {"ready": "✓", "kept": "✓", "done": "✓", "failed": "✗", "interrupted": "!"}
_COLOURS = {"ready": "green", "kept": "dim", "done": "green", "failed": "red", "interrupted": "yellow"}

# Styles of a result on a terminal with color (SGR).
Style = Literal["", "header", "current"]
_STYLES: dict[Style, str] = {"header": "\x1b[1m", "current": "\x1b[1;33m"}
_PLAIN = "\x1b[0m"

# Verbs in advised commands that act on one cluster.
_VERB = re.compile(
    r"(\./invokew (?:up|status|open|doctor|submit|attach|breakpoints|debug|retry|edits|failures|lab|logs"
    r"|diagnose|prepare|replay|workshop|down)"
    r"|rayside (?:connect|status|submit|attach|breakpoints|debug|retry|edits|failures|replay|stacks|compare"
    r"|logs"
    r"|disconnect))\b"
    r"(?![^;,]* --name)"
)

# Equivalents of a clone's commands in the package, whose program is `rayside`.
PACKAGE = "rayside"
_IN_PACKAGE = {
    "./invokew doctor --fix": "install it",
    "./invokew debug --stacks": "rayside stacks",
    "./invokew debug --compare": "rayside compare",
    "./invokew up": "rayside connect",
    "./invokew down": "rayside disconnect",
    "./invokew doctor": "rayside status",
    "./invokew diagnose": "rayside logs",
    "./invokew": "rayside",
}
_OF_CLONE = re.compile("|".join(rf"{re.escape(text)}\b" for text in _IN_PACKAGE))

# Commands that make or remove a cluster; only the clone that made it can run them.
_MAKES = re.compile(r"\./invokew (?:up|down)\b")
_NEXT = re.compile(rf"Next: (?={_MAKES.pattern})")
_THERE = "where Rayside was cloned"

# Without a terminal, minimum seconds between two notes of one piece of work.
_QUIET = 5.0


@dataclass
class _Row:
    title: str
    since: float
    note: str = ""
    quiet_until: float = 0.0


@dataclass
class Console:
    """Writer to `out` and `err`; with `as_json`, `out` gets one JSON document and nothing else.

    The commands in its hints are of `program`, for the cluster named `cluster`. With `made_elsewhere`,
    hints with `./invokew up` and `down` point to the clone that made the cluster: the workspace and the
    package can't run them.
    """

    as_json: bool = False
    cluster: str = DEFAULT_NAME
    out: TextIO = field(default_factory=lambda: sys.stdout)
    err: TextIO = field(default_factory=lambda: sys.stderr)
    made_elsewhere: bool = False
    program: str = "./invokew"
    _rows: dict[str, _Row] = field(default_factory=dict)
    _live: Live | None = None
    _stream: plain.Stream | None = None
    # Never print on the live display while holding it: drawing takes the display's lock, then this one.
    _lock: threading.Lock = field(default_factory=threading.Lock)

    # --- results -------------------------------------------------------------------------

    def result(self, text: str = "", style: Style = "") -> None:
        """Writes one or several lines of a command's result; nothing with `as_json`."""
        if self.as_json:
            return
        shown = plain.plain(self.for_cluster(text))
        if style and self.colour:
            shown = f"{_STYLES[style]}{shown}{_PLAIN}"
        print(shown, file=self.out, flush=True)

    def output(self, piece: str) -> None:
        """Writes a piece of a program's output, split anywhere; with its colors on a terminal."""
        if self.as_json:
            return
        if self._stream is None:
            self._stream = plain.Stream(colours=self.colour)
        print(self._stream.feed(piece), end="", file=self.out, flush=True)

    def document(self, document: Any) -> None:
        """Writes the command's one JSON document."""
        print(plain.document(document), file=self.out, flush=True)

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Writes left-aligned columns; the last column is never padded or cut."""
        lines = [[plain.line(cell) for cell in row] for row in (header, *rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(header) - 1)]
        for line in lines:
            cells = [cell.ljust(width) for cell, width in zip(line, [*widths, 0], strict=True)]
            self.result("  ".join(cells).rstrip())

    def error(self, error: RaysideError) -> None:
        """Writes what happened and the one thing to do; with `as_json`, a document on `out`."""
        if self.as_json:
            document = error.document()
            hint = self.for_cluster(self._hint(error))
            self.document({**document, "error": {**document["error"], "hint": hint}})
            return
        self._say(f"error[{error.id}]: {error.message}")
        self._say(f" hint: {self._hint(error)}")

    def _hint(self, error: RaysideError) -> str:
        elsewhere = self.made_elsewhere and _MAKES.search(error.hint) and _THERE not in error.hint
        return f"{_THERE}: {error.hint}" if elsewhere else error.hint

    # --- a conversation (the terminal debugger) ------------------------------------------

    @property
    def colour(self) -> bool:
        """Returns whether `out` can show color, and should; NO_COLOR and TERM=dumb are respected."""
        from rich.console import Console as Rich

        screen = Rich(file=self.out)
        # Rich's `color_system` ignores NO_COLOR.
        return screen.color_system is not None and not screen.no_color

    @property
    def typed_at(self) -> bool:
        """Returns whether standard input is a terminal, and neither a file nor a pipe."""
        return sys.stdin.isatty()

    def ask(self, prompt: str) -> str:
        """Returns a line typed by the user. Raises EOFError at its end, KeyboardInterrupt on Ctrl-C."""
        return input(prompt)

    # --- progress ------------------------------------------------------------------------

    def event(self, text: str) -> None:
        """Writes one line about an event."""
        self._say(text)

    def started(self, name: str, title: str) -> None:
        """Shows that a piece of work began, and its elapsed time until `finished`."""
        with self._lock:
            self._rows[name] = _Row(title, time.monotonic())

    def note(self, name: str, text: str) -> None:
        """Shows the current action of that work."""
        with self._lock:
            row = self._rows.get(name)
            if row is None or row.note == text:
                return
            row.note = text
            now = time.monotonic()
            if self._live is not None or now < row.quiet_until:
                return
            row.quiet_until = now + _QUIET
        self._say(f"{row.title}: {text}")

    def finished(self, name: str, title: str, outcome: str, detail: str) -> None:
        """Shows that a piece of work ended; `outcome` is a key of `_MARKS`, `detail` its last state."""
        with self._lock:
            row = self._rows.pop(name, None)
        seconds = f" ({time.monotonic() - row.since:.1f} s)" if row else ""
        line = f"{title}: {outcome}{f', {detail}' if detail else ''}{seconds}"
        live = self._live
        if live is None:
            self._say(line)
            return
        from rich.text import Text

        mark = Text(f"{_MARKS[outcome]} ", style=_COLOURS[outcome])
        live.console.print(mark.append(plain.plain(self.for_cluster(line)), style="default"))

    @contextmanager
    def work(self, name: str, title: str) -> Iterator[None]:
        """Shows the body of the `with` as a piece of work."""
        self.started(name, title)
        outcome = "failed"
        try:
            yield
            outcome = "done"
        finally:
            self.finished(name, title, outcome, "")

    @contextmanager
    def progress(self) -> Iterator[None]:
        """Draws running work live on a terminal, with its elapsed time, while in the context."""
        if self.as_json or not self.err.isatty():
            yield
            return
        from rich.console import Console as Rich
        from rich.live import Live

        screen = Rich(file=self.err, highlight=False)
        with Live(console=screen, get_renderable=self._render, refresh_per_second=8, transient=True) as live:
            self._live = live
            try:
                yield
            finally:
                self._live = None

    def _render(self) -> Any:
        from rich.console import Group
        from rich.text import Text

        now = time.monotonic()
        with self._lock:
            lines = [
                plain.line(f"  {row.title} {now - row.since:5.1f} s  {row.note}").rstrip()
                for row in self._rows.values()
            ]
        return Group(*[Text(line, no_wrap=True, overflow="ellipsis") for line in lines])

    def for_cluster(self, text: str) -> str:
        """Returns the text with the cluster's name in each command, except for the default cluster."""
        if self.made_elsewhere:
            text = _NEXT.sub(f"Next, {_THERE}: ", text)
        if self.program == PACKAGE:
            text = _OF_CLONE.sub(self._in_package, text)
        return text if self.cluster == DEFAULT_NAME else _VERB.sub(rf"\1 --name {self.cluster}", text)

    def _in_package(self, found: re.Match[str]) -> str:
        is_of_clone = self.made_elsewhere and _MAKES.fullmatch(found[0])
        return found[0] if is_of_clone else _IN_PACKAGE[found[0]]

    def _say(self, text: str) -> None:
        text = plain.plain(self.for_cluster(text))
        live = self._live
        if live is not None:
            from rich.text import Text

            live.console.print(Text(text))
            return
        with self._lock:
            print(text, file=self.err, flush=True)
