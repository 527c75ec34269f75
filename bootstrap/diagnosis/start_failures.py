"""Finds why a worker process ended before it had registered with Ray: its interpreter, and its last words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from bootstrap.diagnosis.evidence import Evidence, program_of
from bootstrap.diagnosis.ray_errors import last_raised
from rayside.ray.outcome import explain_exit
from rayside.worker.redaction import Redactor

# These fields of a runtime_env choose the Python that a worker starts with.
_FIELDS = ("py_executable", "conda", "pip", "uv", "image_uri", "container")
# With these it starts at once: nothing has to be installed before.
_STARTED_AT_ONCE = ("py_executable", "conda")
# What its node prints reaches a driver so.
_TOLD = re.compile(r"^\(raylet(?:, ip=[^)]{1,100})?\) (.*)", re.MULTILINE)
_DEAD = "probably it crashed during start"
# These lines are Ray's own, or what `uv run` prints while all goes well.
_NO_END = re.compile(
    r"\[\d{4}-|A worker died or was killed|Task \S+ failed|\d+ workers? .*killed|warning:|\s*$"
    r"|(?:Using|Creating|Download(?:ing|ed)|Building|Built|Installed|Resolved|Prepared|Updated) "
    r"| *[-+~] [\w.-]+==",
    re.IGNORECASE,
)
# A shell says so of the program that it can't run.
_NO_PROGRAM = re.compile(r"sh: (?:(?:line )?\d+: )?.+: (?:No such file or directory|(?:command )?not found)$")
_NO_RIGHT = re.compile(r"sh: (?:(?:line )?\d+: )?.+: (?:Permission denied|cannot execute.*)$")
# So many of its last lines are told, and so much of a field.
_MOST_LINES, _LONGEST = 3, 120
# So many of the last lines are looked at, and so much of each: the job printed them.
_MOST_READ, _LONGEST_LINE = 200, 500


def explained(
    runtime_env: Mapping[str, Any], submission_id: str, evidence: Evidence, *, is_free: bool
) -> tuple[str, str] | None:
    """Returns why no worker starts with that runtime_env, and what to do; None where nothing says so.

    `is_free`: nothing else is known to have what the worker needs.
    """
    field = next((name for name in _FIELDS if runtime_env.get(name)), "")
    value = runtime_env.get(field)
    program = program_of(runtime_env)
    told = _TOLD.findall(evidence.logs.get(submission_id, ""))
    words = _own(told or evidence.raylet_errors.splitlines(), program, evidence)
    named = [line for line in words if _names(line, program)]
    is_dead = any(_DEAD in line for line in told)
    if field in _STARTED_AT_ONCE:
        says_so = bool(named) or is_dead or (is_free and bool(words))
    else:
        # An environment may still be in the making, or it is another task's worker that ended.
        says_so = is_dead and (bool(field) or (is_free and not evidence.py_executables))
    if not says_so:
        return None
    raised = None if named else last_raised("\n".join(words))
    last = [f"{raised.name}: {raised.message}"[:_LONGEST_LINE]] if raised else (named or words)[-_MOST_LINES:]
    code = 127 if any(map(_NO_PROGRAM.search, last)) else 126 if any(map(_NO_RIGHT.search, last)) else 0
    code = code or (1 if raised else 0)
    is_shown = field in ("py_executable", "conda", "image_uri") and isinstance(value, str)
    shown = Redactor([]).text(str(value))[:_LONGEST] if is_shown else ""
    whose = f"its {f'{field} {shown}'.strip()}" if field else "its worker process"
    ending = f"with {explain_exit(code)}" if code else "with an exit code that Ray does not keep"
    lines = " | ".join(dict.fromkeys(last))
    return (
        f"{whose} ends {ending}, before it is a worker of Ray's: {lines or 'it printed nothing'}",
        f"correct {field or 'what it names'} in the runtime_env, and submit again",
    )


def _own(lines: Sequence[str], program: str, evidence: Evidence) -> list[str]:
    """Returns what workers printed before they had registered, without what names another one's program."""
    others = evidence.py_executables - {program}
    return [
        line.partition(" [repeated ")[0].rstrip()
        for line in (line[:_LONGEST_LINE] for line in lines[-_MOST_READ:])
        if not _NO_END.match(line) and not any(_names(line, other) for other in others)
    ]


def _names(line: str, program: str) -> bool:
    around = rf"(?:^|[\s'\"]){re.escape(program)}(?=[\s:'\"]|$)"
    return bool(program) and program in line and re.search(around, line) is not None
