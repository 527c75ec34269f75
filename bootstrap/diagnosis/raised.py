"""Exceptions in logs and in Ray's tables: which one ended a driver, a task or an actor, and where."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bootstrap.diagnosis.evidence import Actor, Task

_TRACEBACK = "Traceback (most recent call last):"
# An exception group, or a traceback that rich draws in a box: for these the log's last line is quoted.
_DRAWN = re.compile(
    r"^(?!\().*(?:\+ Exception Group Traceback|[─-] Traceback \(most recent call last\) [─-])"
)
# An exception's line: its class, for a RayTaskError the cause's class, and its message. A class defined in a
# function has a name as in `module.train.<locals>.RowError`.
_EXCEPTION = re.compile(
    r"^(?P<name>(?:[^\W\d]\w*|<\w+>)(?:\.(?:[^\W\d]\w*|<\w+>))*)(?:\([\w.]+\))?(?:: (?P<message>.*))?$"
)
_FRAME = re.compile(r'^ +File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>.+))?$')
# Ray writes a task's name before the frames that ran in it.
_TASK = re.compile(r"ray::(?P<task>[^()\s]{1,300})\(\)")
# Between a program's lines Ray prints lines of other processes, and its own log.
_OTHERS = re.compile(
    r"^\([\w. -]{1,200}?(?: pid=\d{1,10}(?!\d)[^)]*| \+\d{1,9}[a-z_]{0,9}(?:, ip=[^)]*)?|, ip=[^)]*)?\) "
    r"|^\[?\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[,.\t ]"
)
# Python continues after an exception that it prints below such a line.
_ASIDE = re.compile(
    r"Exception ignored (?:in|on|while)\b|Exception in thread |\w+ exception was never retrieved"
)
_NOT_THE_USERS = re.compile(r"/site-packages/|/lib/python3|\.p(?:yx|xi)$|^<frozen")
# Folders of a worker with the files that were sent with a job.
_SENT = re.compile(r"^.*/runtime_resources/(?:working_dir|py_modules)_files/[^/]+/")
_ENTRYPOINT = "Running entrypoint for job "
# Limit: lines that are quoted of an exception's message.
_MOST_LINES = 6

# Ray's exceptions (ray/exceptions.py) by error type in its table of tasks (ErrorType of common.proto).
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
        name: the class of the exception, without the module; for a RayTaskError, the class of its cause.
        message: the exception's message, which may have several lines.
        cause: an exception within it, as a line; empty if there is none.
        subject: the failed task, actor or driver, as in `task parse`, `actor Model` or `the driver`.
        place: the line of the user's code, as in `train.py:12, in load`; empty if unknown.
        text: the whole output of the failure, and around it.
        tasks: the tasks that an exception passed through, the outermost first.
        is_tasks: whether a task raised it, and Ray raised it again in the driver.
        attempts: number of a task's attempts; 1 without a retry.
        restarts: number of an actor's restarts.
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

    `tasks` are the job's failed tasks, the latest first; `actors` are the job's actors.
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
    """Returns the last line with a word in it, without the margin of an exception group."""
    # Ray's own line may follow the lines of a program that ended at once.
    lines = (line.strip(" |+-") for line in reversed(text.splitlines()) if _ENTRYPOINT not in line)
    return next((line for line in lines if re.search(r"\w", line)), "")


def last_raised(log: str) -> Failure | None:
    """Returns the exception that ended the program with this log; None if it has none in plain form."""
    lines = log.splitlines()
    traced = [at for at, line in enumerate(lines) if line == _TRACEBACK]
    begun = [at for at in traced if not any(map(_ASIDE.match, lines[max(0, at - 2) : at]))]
    drawn = max((at for at, line in enumerate(lines) if _DRAWN.match(line)), default=-1)
    if (traced and not begun) or drawn > (begun[-1] if begun else -1):
        return None
    if begun:
        after = (at for at in range(begun[-1], len(lines)) if _ASIDE.match(lines[at]))
        lines = _up_to_others(lines[begun[-1] : next(after, len(lines))])
        # The first is the driver's own, and the next lines are its message.
        return _raised(lines, _ends(lines)[:1])
    # A SyntaxError of the program itself comes last, without a traceback, after the place in the code.
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
    """Returns the class of the exception on this line, without its module, and its message."""
    match = _EXCEPTION.fullmatch(lines[at])
    assert match, "it is one of `_ends`"
    words = [match["message"] or "", *lines[at + 1 :]]
    return match["name"].rpartition(".")[2], "\n".join(words[:_MOST_LINES]).strip()


def _ends(lines: Sequence[str]) -> list[int]:
    """Returns the indexes of exceptions' lines: at the margin, below the lines of a frame."""
    return [
        at
        for at, line in enumerate(lines)
        if at and lines[at - 1].startswith((" ", _TRACEBACK)) and _EXCEPTION.fullmatch(line)
    ]


def _up_to_others(lines: Sequence[str]) -> list[str]:
    """Returns a traceback up to the next line of another process after it, without such lines within it."""
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
