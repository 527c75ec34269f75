"""Commands of the terminal debugger: names, abbreviations (pdb's), help, and syntax of their arguments."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from rayside.dap.expressions import problem_of, refusal_of
from rayside.errors import InvalidArgument


@dataclass(frozen=True)
class Word:
    name: str
    short: tuple[str, ...]
    takes: str
    does: str


WORDS = (
    Word("next", ("n",), "", "run to the next line of this function"),
    Word("step", ("s",), "", "run to the next line, into the function, or the task, that is called"),
    Word("finish", ("out", "return", "r", "fin"), "", "run until this function has returned"),
    Word("continue", ("c", "cont"), "", "let this task go on; wait for the next stop of any task"),
    Word("list", ("l",), "[LINE]", "show the source; again for more"),
    Word("where", ("w", "bt", "stack"), "", "show the stack"),
    Word("up", ("u",), "", "to the caller's frame"),
    Word("down", ("d",), "", "back to the frame that was called"),
    Word("locals", ("a", "args"), "", "show the variables of this frame"),
    Word("p", ("print", "pp"), "EXPR", "evaluate an expression in this frame"),
    Word("!", ("exec",), "STATEMENT", "run a statement in this frame, such as `! x = 1`"),
    Word("compare", (), "EXPR", "evaluate an expression in all stopped tasks, what is odd first"),
    Word("group", (), "@GROUP", "show who belongs to a group of tasks, as in `group @ranks`"),
    Word("pause", (), "@GROUP", "stop all tasks of a group where they are"),
    Word("retry", (), "[TASK]", "run this failed task again, with your files as they are now; or @GROUP"),
    Word("break", ("b",), "[[FILE:]LINE[ HITS][ if COND]]", "stop every task at that line; alone, list them"),
    Word("clear", ("cl",), "[[FILE:]LINE]", "remove that breakpoint; alone, all of them"),
    Word("tasks", ("t",), "", "list the tasks that are stopped"),
    Word("task", (), "N", "switch to task N of that list"),
    Word("help", ("h", "?"), "", "this list"),
    Word("quit", ("q", "exit"), "", "leave, all tasks go on"),
)

STEPS = {"next": "next", "step": "stepIn", "finish": "stepOut"}  # to DAP's requests

# Help on Ctrl-C at an empty prompt.
STAYS = "Ctrl-C at an empty prompt leaves, and what is stopped stays so."
ENDS = "Ctrl-C at an empty prompt ends the program."

_NAMES = {name: word.name for word in WORDS for name in (word.name, *word.short)}


def names() -> list[str]:
    """Returns the names and abbreviations of commands, for completion."""
    return sorted(name for name in _NAMES if name.isalpha())


def parse(line: str) -> tuple[str, str]:
    """Returns the command's full name and the rest of the line; an unknown name is unchanged."""
    line = line.strip()
    if line[:1] in {"!", "?"}:
        return _NAMES[line[0]], line[1:].strip()
    typed, _, rest = line.partition(" ")
    return _NAMES.get(typed, typed), rest.strip()


# Syntax after a line number: DAP's hitCondition, in the relay's forms.
_HITS = (
    r"(?:\s+(?:(?P<hits>first|gather\s+(?:[2-9]|[1-9][0-9]{1,3})(?:\s+within\s+[1-9][0-9]{0,2}\s*s?)?)"
    r"|hit\s+(?P<count>(?:==|>=|<=|>|<|%)?\s*[0-9]{1,9})))?"
)
_PLACE = re.compile(rf"(?:(?P<file>.+):)?(?P<line>[0-9]{{1,9}}){_HITS}(?:\s*,?\s+if\s+(?P<cond>\S.*))?")
GROUPS = (
    "next, step, finish and continue take `@GROUP` as well, as in `next @ranks within 60`: all tasks of it,"
    " side by side. A GROUP is `all`, `failed`, `ranks`, `actor:CLASS`, `task:NAME`, or `ray.rank > 3`."
)
HITS = "first, gather N [within S] or hit COUNT"


@dataclass(frozen=True)
class Place:
    """Place of a breakpoint; `file` is None for the shown file.

    `hits` is DAP's hitCondition.
    """

    file: str | None
    line: int
    condition: str | None
    hits: str | None = None

    def __str__(self) -> str:
        hits = f" {self.hits if self.hits[0].isalpha() else f'hit {self.hits}'}" if self.hits else ""
        return f"{self.file}:{self.line}{hits}" + (f" if {self.condition}" if self.condition else "")


def place(text: str) -> Place | None:
    """Parses `[FILE:]LINE[ HITS][ if COND]`, else returns None; FILE may contain spaces and colons."""
    return _place(_PLACE.fullmatch(text.strip()))


_OPTION = re.compile(rf"(?P<file>.+?):(?P<line>[0-9]{{1,9}}){_HITS}(?:\s*:(?P<cond>.*\S.*))?", re.DOTALL)


def option(text: str) -> Place | None:
    """Parses `FILE:LINE[ HITS][:CONDITION]`, else returns None; FILE and CONDITION may contain colons."""
    return _place(_OPTION.fullmatch(text))


def _place(match: re.Match[str] | None) -> Place | None:
    if match is None or int(match["line"]) < 1:
        return None
    condition = match["cond"].strip() if match["cond"] else None
    return Place(match["file"], int(match["line"]), condition, match["hits"] or match["count"])


def check_condition(condition: str | None) -> None:
    """Raises InvalidArgument for an invalid condition, before any task gets it."""
    if why := problem_of(condition or ""):
        raise InvalidArgument(
            f"the condition {condition!r} is no Python expression: {why}", hint="as in x > 3, or x == 3"
        )


def break_option(text: str) -> Place:
    """Parses the value of --break; the file becomes absolute. Raises InvalidArgument."""
    place = option(text)
    if place is None or place.file is None:
        raise InvalidArgument(
            f"--break {text} is not FILE:LINE[ HITS][:CONDITION]",
            hint=f"as in --break my_task.py:12:'x > 3'; HITS is {HITS}",
        )
    check_condition(place.condition)
    file = Path(place.file).expanduser().absolute()
    if not file.is_file():
        raise InvalidArgument(f"there is no file {file}", hint="name it from the current folder")
    return replace(place, file=str(file))


def unknown(name: str, line: str) -> str:
    """Returns the message for a line without a valid command."""
    # An assignment is no expression.
    prefix = "!" if problem_of(line) else "p"
    return f"`{name}` is no command; `{prefix} {line}` evaluates it, `help` lists the commands"


def evaluate_option(text: str) -> str:
    """Checks the value of --evaluate, and returns it. Raises InvalidArgument for an invalid expression."""
    if problem := refusal_of(text):
        raise InvalidArgument(f"--evaluate {text!r}: {problem}", hint="as in --evaluate 'len(rows)'")
    return text


def usage(*, stays: bool = True) -> str:
    """Returns the help text, one line per command; `stays`: whether Ctrl-C leaves tasks stopped."""
    rows = [(f"{', '.join((word.name, *word.short))} {word.takes}".rstrip(), word.does) for word in WORDS]
    width = max(len(left) for left, _ in rows)
    lines = [f"  {left:<{width}}  {right}" for left, right in rows]
    lines += [f"HITS is {HITS}.", GROUPS, "An empty line repeats the last next, step, finish or list."]
    return "\n".join([*lines, STAYS if stays else ENDS])


def named_place(command: str, text: str) -> Place:
    """Parses the place after a command. Raises InvalidArgument."""
    named = place(text)
    if named is None:
        raise InvalidArgument(
            f"not a place: {text}",
            hint=f"`{command} 12` or `{command} file.py:12`; `break 12 if x > 3`, `break 12 gather 8`",
        )
    check_condition(named.condition)
    return named
