"""Exceptions in logs and in Ray's tables: which one ended a driver, a task or an actor, and where."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bootstrap.diagnosis.evidence import Actor, Task

_TRACEBACK = "Traceback (most recent call last):"
# An exception group, or a traceback that rich draws in a box: the log's last words tell of these.
_DRAWN = re.compile(
    r"^(?!\().*(?:\+ Exception Group Traceback|[─-] Traceback \(most recent call last\) [─-])"
)
# An exception's line: its class, of a RayTaskError the cause's class, and its words. A class that a function
# has made is called as in `module.train.<locals>.RowError`.
_EXCEPTION = re.compile(
    r"^(?P<name>(?:[^\W\d]\w*|<\w+>)(?:\.(?:[^\W\d]\w*|<\w+>))*)(?:\([\w.]+\))?(?:: (?P<message>.*))?$"
)
_FRAME = re.compile(r'^ +File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>.+))?$')
# Ray writes a task's name before the frames that ran in it.
_TASK = re.compile(r"ray::(?P<task>[^()\s]{1,300})\(\)")
# Between a program's lines Ray prints those of other processes, and its own log.
_OTHERS = re.compile(
    r"^\([\w. -]{1,200}?(?: pid=\d{1,10}(?!\d)[^)]*| \+\d{1,9}[a-z_]{0,9}(?:, ip=[^)]*)?|, ip=[^)]*)?\) "
    r"|^\[?\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[,.\t ]"
)
# Python continues after what it prints below such a line.
_ASIDE = re.compile(
    r"Exception ignored (?:in|on|while)\b|Exception in thread |\w+ exception was never retrieved"
)
_NOT_THE_USERS = re.compile(r"/site-packages/|/lib/python3|\.p(?:yx|xi)$|^<frozen")
# A worker has the files that were sent with a job in such folders.
_SENT = re.compile(r"^.*/runtime_resources/(?:working_dir|py_modules)_files/[^/]+/")
_ENTRYPOINT = "Running entrypoint for job "
# An exception's own words are quoted up to so many lines.
_MOST_LINES = 6

# Ray's table of tasks calls a failure so (ErrorType of common.proto), its exceptions (ray/exceptions.py) so.
_OF_TABLE = {
    "WORKER_DIED": "WorkerCrashedError",
    "ACTOR_DIED": "ActorDiedError",
    "ACTOR_CREATION_FAILED": "ActorDiedError",
    "ACTOR_UNAVAILABLE": "ActorUnavailableError",
    "TASK_CANCELLED": "TaskCancelledError",
    "RUNTIME_ENV_SETUP_FAILED": "RuntimeEnvSetupError",
    "OBJECT_LOST": "ObjectLostError",
    "OBJECT_FREED": "ObjectFreedError",
    "OBJECT_FETCH_TIMED_OUT": "ObjectFetchTimedOutError",
    "OWNER_DIED": "OwnerDiedError",
    "LOCAL_RAYLET_DIED": "LocalRayletDiedError",
    "NODE_DIED": "NodeDiedError",
    "TASK_PLACEMENT_GROUP_REMOVED": "TaskPlacementGroupRemoved",
    "ACTOR_PLACEMENT_GROUP_REMOVED": "ActorPlacementGroupRemoved",
    "TASK_UNSCHEDULABLE_ERROR": "TaskUnschedulableError",
    "ACTOR_UNSCHEDULABLE_ERROR": "ActorUnschedulableError",
    "OUT_OF_DISK_ERROR": "OutOfDiskError",
    "OUT_OF_MEMORY": "OutOfMemoryError",
}


@dataclass(frozen=True)
class Failure:
    """A failure of a driver, a task or an actor that `causes` explains.

    Attributes:
        name: the class of the exception by which Ray, or Python, tells of it, without the module; of a
            RayTaskError that of its cause.
        message: its own words, which may be several lines.
        cause: an exception within it, as a line; empty where there is none.
        subject: who failed, as in `task parse`, `actor Model` or `the driver`.
        place: the user's line, as in `train.py:12, in load`; empty where none is known.
        text: all that was printed of it, and around it.
        tasks: the tasks that an exception came through, the outermost first.
        is_tasks: whether a task raised it, and the driver got it by Ray.
        attempts: how often a task was tried; 1 where it was not tried again.
        restarts: how often an actor was started again.
        unfinished: the names of the job's tasks that had not finished when it ended.
    """

    name: str
    message: str
    text: str
    cause: str = ""
    subject: str = "the driver"
    place: str = ""
    tasks: tuple[str, ...] = ()
    is_tasks: bool = False
    attempts: int = 1
    restarts: int = 0
    unfinished: Sequence[str] = ()


def of_driver(
    raised: Failure, log: str, tasks: Sequence[Task], actors: Sequence[Actor], unfinished: Sequence[str]
) -> Failure:
    """Returns the failure of a job whose driver ended with an exception.

    `tasks` are the job's failed tasks, the latest first, and `actors` the job's.
    """
    # Ray's own exceptions don't name their task or actor; its tables do.
    of_its_kind = [task for task in tasks if _OF_TABLE.get(task.error_type) == raised.name]
    named = [task for task in tasks if raised.tasks and task.name == raised.tasks[-1]]
    task = next(iter([*named, *of_its_kind]), None)
    actor = next((actor for actor in actors if actor.actor_id in raised.text), None)
    if actor and raised.name in ("ActorDiedError", "ActorUnavailableError"):
        subject = f"actor {actor.name}"
    elif raised.tasks:
        subject = f"task {raised.tasks[-1]}"
    elif of_its_kind:
        subject = f"task {of_its_kind[0].name}"
    else:
        subject = "a task" if raised.is_tasks else "the driver"
    return replace(
        raised,
        subject=subject,
        text="\n".join([raised.text, task.error if task else "", log]),
        attempts=task.attempt + 1 if task else 1,
        restarts=actor.restarts if actor else 0,
        unfinished=unfinished,
    )


def of_task(task: Task) -> Failure:
    raised = _raised(lines := task.error.partition("\nSystem error:")[0].splitlines(), _ends(lines)[-1:])
    is_rays = task.error_type in _OF_TABLE
    name, message = (raised.name, raised.message) if raised else ("an exception", last_words(task.error))
    return Failure(
        name=_OF_TABLE[task.error_type] if is_rays else name,
        message=task.error if is_rays else message,
        cause=f"{raised.name}: {raised.message}" if raised else "",
        subject=f"task {task.name}",
        place=raised.place if raised else "",
        text=task.error,
        attempts=task.attempt + 1,
    )


def of_actor(actor: Actor) -> Failure:
    names = {
        "oom": "OutOfMemoryError",
        "runtime_env_failed": "RuntimeEnvSetupError",
        "actor_unschedulable": "ActorUnschedulableError",
    }
    return Failure(
        name=names.get(actor.reason, "ActorDiedError"),
        message=actor.cause,
        subject=f"actor {actor.name}",
        text=actor.cause,
        restarts=actor.restarts,
    )


def last_words(text: str) -> str:
    """Returns the last line that has a word in it, without the margin of an exception group."""
    # Ray's own line may come after those of a program that ended at once.
    lines = (line.strip(" |+-") for line in reversed(text.splitlines()) if _ENTRYPOINT not in line)
    return next((line for line in lines if re.search(r"\w", line)), "")


def last_raised(log: str) -> Failure | None:
    """Returns the exception that ended the program which printed `log`; None where none is in plain form."""
    lines = log.splitlines()
    traced = [at for at, line in enumerate(lines) if line == _TRACEBACK]
    begun = [at for at in traced if not any(map(_ASIDE.match, lines[max(0, at - 2) : at]))]
    drawn = max((at for at, line in enumerate(lines) if _DRAWN.match(line)), default=-1)
    if (traced and not begun) or drawn > (begun[-1] if begun else -1):
        return None
    if begun:
        after = (at for at in range(begun[-1], len(lines)) if _ASIDE.match(lines[at]))
        lines = _up_to_others(lines[begun[-1] : next(after, len(lines))])
        # The first is the driver's own, and what follows are its words.
        return _raised(lines, _ends(lines)[:1])
    # A SyntaxError of the program itself has no traceback, and is the last; it has the place before it.
    ends = [at for at in _ends(lines) if any(map(_FRAME.match, lines[max(0, at - 4) : at]))]
    return _raised(lines, ends[-1:])


def _raised(lines: Sequence[str], end: Sequence[int]) -> Failure | None:
    if not end:
        return None
    name, message = _named(lines, end[0])
    inner = [at for at in _ends(lines) if at > end[0]]
    is_tasks = bool(inner) and name == "RayTaskError"
    if is_tasks:
        name, message = _named(lines, inner[-1])
    return Failure(
        name=name,
        message=message,
        cause=lines[inner[-1]] if inner and not is_tasks else "",
        tasks=tuple(dict.fromkeys(match["task"] for match in _TASK.finditer("\n".join(lines)))),
        place=_place(lines),
        text="\n".join(lines),
        is_tasks=is_tasks,
    )


def _named(lines: Sequence[str], at: int) -> tuple[str, str]:
    """Returns the class of the exception whose line that is, without its module, and its words."""
    match = _EXCEPTION.fullmatch(lines[at])
    assert match, "it is one of `_ends`"
    words = [match["message"] or "", *lines[at + 1 :]]
    return match["name"].rpartition(".")[2], "\n".join(words[:_MOST_LINES]).strip()


def _ends(lines: Sequence[str]) -> list[int]:
    """Returns where an exception's line is: at the margin, below the lines of a frame."""
    return [
        at
        for at, line in enumerate(lines)
        if at and lines[at - 1].startswith((" ", _TRACEBACK)) and _EXCEPTION.fullmatch(line)
    ]


def _up_to_others(lines: Sequence[str]) -> list[str]:
    """Returns a traceback without what others print between its lines, and up to what they print after it."""
    kept: list[str] = []
    ended = False
    for line in lines:
        if not _OTHERS.match(line):
            kept.append(line)
            ended = ended or bool(_ends(kept[-2:]))
        elif ended:
            break
    return kept


def _place(lines: Sequence[str]) -> str:
    """Returns the innermost line of the user's own code."""
    frames = [frame for line in lines if (frame := _FRAME.match(line))]
    own = [frame for frame in frames if not _NOT_THE_USERS.search(frame["file"])]
    if not own:
        return ""
    place = f"{_SENT.sub('', own[-1]['file'])}:{own[-1]['line']}"
    function = own[-1]["function"]
    return f"{place}, in {function}" if function and function != "<module>" else place
