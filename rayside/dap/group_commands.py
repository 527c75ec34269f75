"""Group commands, shared by relay and debuggers: their syntax, and the drawing of the relay's answer."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rayside.dap.additions import title_of
from rayside.plain import counted, line, some_of

# States of members: stopped; about to stop; running without a command; ended; not a member any more, or of
# another debugger; failed to step or resume; a process that has not answered, so that membership is unknown.
STOPPED, LATE, RUNNING, ENDED, LEFT, FAILED, UNKNOWN = (
    *("stopped", "late", "running", "ended", "left", "failed", "unknown"),
)
# Requests for a group by typed word, and the request that only lists members.
ACTIONS = {
    **{"next": "next", "step": "stepIn", "finish": "stepOut", "out": "stepOut"},
    **{"continue": "continue", "pause": "pause"},
}
MEMBERS = "members"
# Word for a retry of failed members, and the group of all failed tasks.
RETRY, ALL_FAILED = "retry", "failed"
# Outcomes of a retry: as in rayside/worker/calls.py, and a refused one.
RETURNED, RAISED, REFUSED = "returned", "raised", "refused"
# Timeout of a retry's outcomes in seconds: default and limit.
RETRYING, MOST_RETRYING = 60, 86_400
# Timeout in seconds until all members have stopped again: default and limit.
WITHIN, MOST_WITHIN = 10, 999

_SECONDS = r"(?:\s+within\s+(?P<within>[1-9][0-9]{0,2})\s*s?)?"
_WORDS = "|".join([*ACTIONS, RETRY])
_COMMAND = re.compile(rf"@\s*(?P<group>\S.*?)(?:\s+(?P<word>{_WORDS}))?{_SECONDS}")
_TARGET = re.compile(rf"@\s*(?P<group>\S.*?){_SECONDS}")
# Limits: kinds of members that are drawn, and members that are named of one kind.
_MOST_KINDS, _MOST_NAMED = 20, 3


@dataclass(frozen=True)
class Command:
    """A group command, as it was typed.

    Attributes:
        group: a selector.
        word: one of ACTIONS, or RETRY; empty to list the members.
        within: timeout in seconds.
    """

    group: str
    word: str = ""
    within: int = WITHIN


def command(text: str) -> Command | None:
    """Parses `@GROUP` or `@GROUP WORD [within S]`; returns None if it is neither."""
    match = _COMMAND.fullmatch(text.strip())
    return match and Command(match["group"], match["word"] or "", int(match["within"] or WITHIN))


def target(text: str) -> Command | None:
    """Parses `@GROUP [within S]` after a word; returns None if it isn't that."""
    match = _TARGET.fullmatch(text.strip())
    return match and Command(match["group"], within=int(match["within"] or WITHIN))


def drawn(answer: Mapping[str, Any]) -> Iterator[str]:
    """Draws the relay's answer to `group`, line by line: late and ended members come first."""
    rows = answer["members"]
    if not rows and (answer["group"], answer["action"]) == ("all", "pause"):
        yield "Nothing runs that could be paused."
        return
    name = line(answer["group"], 200)
    is_named = answer["group"] in ("all", answer["selector"])
    selector = "" if is_named else f"  ({line(answer['selector'], 200)})"
    # The rows include former members.
    count = sum(row["state"] not in (ENDED, LEFT, UNKNOWN) for row in rows)
    yield f"@{name}{selector}: {counted(count, 'member')}"
    kinds = _kinds(rows)
    for (state, *_), alike in kinds[:_MOST_KINDS]:
        yield f"{len(alike):,} {_described(state, alike[0], answer)}"
        yield f"     {_named(alike)}"
    if rest := kinds[_MOST_KINDS:]:
        yield f"{sum(len(alike) for _, alike in rest):,} more, elsewhere"


def drawn_retries(answer: Mapping[str, Any]) -> Iterator[str]:
    """Draws the relay's answer to `retry`, line by line: outcomes, the rarest first; then edited files."""
    alike: dict[tuple[str, str], list[str]] = {}
    for row in answer["retried"]:
        name = f"{line(row['task'], 200)} {line(row['worker_id'], 200)[:8]}".strip()
        alike.setdefault((row["outcome"], line(row["why"], 500)), []).append(name)
    for (outcome, why), names in sorted(alike.items(), key=lambda item: len(item[1]))[:_MOST_KINDS]:
        more = f"; {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
        yield f"{len(names):,} {outcome}{f': {why}' if why else ''}"
        yield f"     {'; '.join(names[:_MOST_NAMED])}{more}"
    if any(outcome == REFUSED for outcome, _ in alike):
        yield "What is refused is as before: change that edit, or submit the job again."
    for file in answer["edited"]:
        yield f"edited: {line(file, 500)}"


def drawn_edits(files: Collection[str]) -> str:
    """Returns a line that lists the edited files that a job has run; empty for none."""
    return f"edited while it ran: {some_of(sorted(files))}" if files else ""


_ORDER = (LATE, ENDED, FAILED, LEFT, UNKNOWN, STOPPED, RUNNING)
_Kind = tuple[str, str, str, str]


def _kinds(rows: Iterable[Mapping[str, Any]]) -> list[tuple[_Kind, list[Mapping[str, Any]]]]:
    """Groups rows with the same text: urgent states first, then groups with the fewest rows."""
    kinds: dict[_Kind, list[Mapping[str, Any]]] = {}
    for row in rows:
        kind = row["state"], _place(row["place"]), _place(row["own"]), row["why"]
        kinds.setdefault(kind, []).append(row)
    return sorted(kinds.items(), key=lambda item: (_ORDER.index(item[0][0]), len(item[1])))


def _described(state: str, row: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
    place, own, why = _place(row["place"]), _place(row["own"]), line(row["why"], 400)
    reason = f": {why}" if why else ""
    if state == LATE:
        seconds = f" after {answer['seconds']} s" if answer["seconds"] else ""
        doing = f", in {place}" if place else ""
        return f"late{seconds}{doing}{f', called from {own}' if own else ''}{reason}"
    texts = {
        STOPPED: f"stopped{f' at {place}' if place else ''}",
        RUNNING: "running" if answer["action"] in (MEMBERS, "continue") else "running, and left out",
        ENDED: "ended",
        LEFT: "no member any more",
        FAILED: "not moved",
        UNKNOWN: "perhaps a member",
    }
    return f"{texts[state]}{reason}"


def _place(place: Mapping[str, Any] | None) -> str:
    return "" if place is None else line(f"{place['function']}  {place['file']}:{place['line']}", 400)


def _named(rows: Sequence[Mapping[str, Any]]) -> str:
    more = len(rows) - _MOST_NAMED
    return "; ".join(map(_title, rows[:_MOST_NAMED])) + (f"; {more:,} more" if more > 0 else "")


def _title(row: Mapping[str, Any]) -> str:
    title = line(title_of(row["task"], row["pid"], row["node"]))
    return title if row["rank"] is None else f"{title} (rank {row['rank']})"
