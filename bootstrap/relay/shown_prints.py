"""Keeps whose prints the editor is shown, sets that when it asks, and says how many lines it does not see."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from bootstrap.dap.expressions import LONGEST, problem_of
from bootstrap.dap.framing import Message
from bootstrap.plain import counted
from bootstrap.relay.configuration import Configuration
from bootstrap.relay.editor import Refused
from bootstrap.relay.flood import Flood, command
from bootstrap.relay.worker import Worker, Workers

_TYPED = re.compile(r"prints\s+(?P<shows>all|off|only\b.*)", re.DOTALL)
_FORMS = "`all`, `off` or `only EXPRESSION`, as in prints only ray.rank == 0"


def attached_with(arguments: Message) -> tuple[bool, str]:
    """Returns what the arguments of an `attach` say: whether prints are shown, and of which tasks.

    Raises Refused.
    """
    only = arguments.get("printsOnly")
    return arguments.get("redirectOutput") is True, _checked(only) if only is not None else ""


def typed(arguments: Message, *, on_row: bool) -> str | None:
    """Returns what the arguments of an `evaluate` say that is to be shown, empty where they only ask.

    None where they are no such command: `prints` alone may be a variable, but on the row of the cluster.
    """
    if arguments.get("context") != "repl":
        return None
    text = arguments["expression"].strip()
    if text == "prints" and on_row:
        return ""
    match = _TYPED.fullmatch(text)
    return match["shows"] if match is not None else None


@dataclass
class Hidden:
    """Counts the lines of tasks that were not chosen, since the editor chose.

    Attributes:
        raised: whether the editor was told that the expression raised.
    """

    lines: int = 0
    of: set[str] = field(default_factory=set)
    raised: bool = False

    def begin(self) -> None:
        self.lines, self.raised = 0, False
        self.of.clear()

    def add(self, worker: Worker, lines: int) -> None:
        if lines:
            self.lines += lines
            self.of.add(worker.debuggee.worker_id)


class ShownPrints:
    """Answers for one debug session."""

    def __init__(
        self, workers: Workers, configuration: Configuration, *, hidden: Hidden, flood: Flood[Worker]
    ) -> None:
        self._workers, self._configuration = workers, configuration
        self._hidden, self._flood = hidden, flood

    async def show(self, shows: object) -> Message:
        """Sets what is shown, as a user types it, and returns that; empty only asks. Raises Refused."""
        if not isinstance(shows, str):
            raise Refused(f"`prints` takes {_FORMS}")
        shows = shows.strip()
        word, _, rest = shows.partition(" ")
        if shows in ("all", "off"):
            await self._set(shows == "all", "")
        elif word == "only":
            await self._set(True, _checked(rest))
        elif shows:
            raise Refused(f"`prints` takes {_FORMS}, and not {shows[:80]!r}")
        prints, only = self._configuration.prints, self._configuration.only
        return {
            "prints": prints,
            "only": only,
            "hidden": self._hidden.lines,
            "leftOut": self._flood.total,
            "text": self._sentence(prints, only),
        }

    async def _set(self, prints: bool, only: str) -> None:
        if (prints, only) != (self._configuration.prints, self._configuration.only):
            self._hidden.begin()
            await self._configuration.set_prints(prints, only)

    def _sentence(self, prints: bool, only: str) -> str:
        chosen = f"tasks where {only}" if only else "all tasks"
        shown = (
            f"What {chosen} print is shown." if prints else "What tasks print is not shown (`prints all`)."
        )
        if only and not prints:
            shown += f" Messages of logpoints are, of {chosen}."
        processes = len(self._hidden.of)
        hidden = (
            f" {self._hidden.lines:,} lines of {counted(processes, 'other process', 'other processes')} were"
            " not shown."
            if self._hidden.lines
            else ""
        )
        left_out = (
            f" {self._flood.total:,} lines were left out, for they came too fast."
            if self._flood.total
            else ""
        )
        jobs = {worker.debuggee.submission_id for worker in self._workers.attached}
        return f"{shown}{hidden}{left_out} All is in the job's own output: {command(jobs)}"


def _checked(expression: object) -> str:
    """Returns the expression that chooses tasks. Raises Refused."""
    if not isinstance(expression, str) or not expression.strip() or len(expression) > LONGEST:
        raise Refused(
            f"only which tasks? An expression of at most {LONGEST:,} characters, as in ray.rank == 0"
        )
    if problem := problem_of(expression):
        raise Refused(f"{expression[:80]!r} is no Python expression: {problem}; as in ray.rank == 0")
    return expression.strip()
