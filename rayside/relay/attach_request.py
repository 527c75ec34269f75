"""Attachment of an editor: capabilities, the arguments of `attach`, and presence by heartbeats."""

from __future__ import annotations

import asyncio

from rayside.dap.additions import ALWAYS, ASK, AWAY, EVERY, MOST_MISSED, RESTART, WATCH
from rayside.dap.client import STOP_IN_USER_CODE
from rayside.dap.framing import Message
from rayside.relay.schemas import Refused

_CONDITION = {
    "supportsCondition": True,
    "conditionDescription": "a Python expression, in the function where it is raised",
}

# These are debugpy's capabilities, without what would end debuggees or needs one process.
CAPABILITIES: Message = {
    "supportsConfigurationDoneRequest": True,
    "supportsFunctionBreakpoints": True,
    "supportsConditionalBreakpoints": True,
    "supportsHitConditionalBreakpoints": True,
    "supportsLogPoints": True,
    "supportsBreakpointLocationsRequest": True,
    "supportsEvaluateForHovers": True,
    "supportsSetVariable": True,
    "supportsSetExpression": True,
    "supportsCompletionsRequest": True,
    "supportsValueFormattingOptions": True,
    "supportsExceptionInfoRequest": True,
    "supportsExceptionOptions": True,
    "supportsExceptionFilterOptions": True,
    "supportsDelayedStackTraceLoading": True,
    "supportsGotoTargetsRequest": True,
    "supportsStepInTargetsRequest": True,
    "supportsClipboardContext": True,
    "supportsCancelRequest": True,
    "supportSuspendDebuggee": True,
    "supportTerminateDebuggee": False,
    "supportsTerminateRequest": False,
    "supportsRestartRequest": False,
    "supportsRestartFrame": False,
    "exceptionBreakpointFilters": [
        {
            "filter": "raised",
            "label": "Raised Exceptions",
            "description": "Stop wherever an exception is raised.",
            "default": False,
            **_CONDITION,
        },
        {
            "filter": "userUnhandled",
            "label": "Exceptions That Leave a Task",
            "description": "Stop where an exception leaves the user's code.",
            "default": False,
            **_CONDITION,
        },
        {
            "filter": "uncaught",
            "label": "Post-Mortem of Ray",
            "description": "Stop where the exception that failed a task was raised (submit --post-mortem).",
            "default": True,
        },
    ],
}

REFUSED: dict[str, str] = {
    "launch": 'the relay starts no program: write "request": "attach" in this configuration, with `token`;'
    " then start the job with ./invokew submit --debug",
    "restart": "a Ray cluster is not restarted from here: submit the job again",
    "restartFrame": "Python can't run a frame again from its start",
    "terminate": "a killed worker has its task run again: cancel the job instead",
    "terminateThreads": "a killed worker has its task run again: cancel the job instead",
}


# These arguments of `attach` say how debuggees are debugged. No others get to debuggees.
_OPTIONS = ("justMyCode", "showReturnValue")


def options_of(arguments: Message) -> Message:
    """Returns how debuggees are debugged: debugpy's `attach` arguments. Raises Refused."""
    options = {name: arguments[name] for name in _OPTIONS if name in arguments}
    rules = arguments.get("rules") or []
    if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
        raise Refused("`rules` has to be a list of objects")
    # Without our rules, which are first, nothing would stop at a `breakpoint()`.
    own_rules = STOP_IN_USER_CODE["rules"]
    return {
        **STOP_IN_USER_CODE,
        **options,
        "rules": [*own_rules, *(rule for rule in rules if rule not in own_rules)],
    }


def mappings_of(arguments: Message) -> list[tuple[str, str]]:
    """Returns the pairs of a local and a remote root. Raises Refused."""
    path_mappings = arguments.get("pathMappings")
    if path_mappings is None:
        return []
    if not isinstance(path_mappings, list):
        raise Refused("`pathMappings` has to be a list")
    mappings = []
    for mapping in path_mappings:
        local = mapping.get("localRoot") if isinstance(mapping, dict) else None
        remote = mapping.get("remoteRoot") if isinstance(mapping, dict) else None
        if not isinstance(local, str) or not isinstance(remote, str) or not local.startswith("/"):
            raise Refused("each of `pathMappings` has an absolute localRoot and a remoteRoot")
        mappings.append((local, remote))
    return mappings


class Presence:
    """Tracks heartbeats of the forward before an editor; without any, presence is unknown.

    Args:
        every: seconds between two beats.
        away: seconds without one after which the editor counts as gone.

    Attributes:
        left: whether the forward has said that the editor ended the connection.
    """

    def __init__(self, *, every: float = EVERY, away: float = AWAY) -> None:
        self.left = False
        self._every, self._away = every, away
        self._beats = asyncio.Event()
        self._missed = 0

    @property
    def by_forward(self) -> bool:
        """Returns whether a forward that sends beats is between."""
        return self._beats.is_set()

    @property
    def is_silent(self) -> bool:
        """Returns whether the forward itself would count the way as lost by now."""
        return self._missed > MOST_MISSED

    def beat(self) -> None:
        self._beats.set()
        self._missed = 0

    async def until_away(self) -> None:
        """Waits until no beat has come for `away` seconds; without any beat for ever."""
        await self._beats.wait()
        # Each pause counts once, however long it was: where this machine slept, no beat could come.
        while self._missed * self._every < self._away:
            await asyncio.sleep(self._every)
            self._missed += 1


def job_of(arguments: Message) -> str | None:
    """Returns the job that an editor asks for; None for all. Raises Refused."""
    job = arguments.get("job")
    if job is not None and not isinstance(job, str):
        raise Refused("`job` has to be a string: a submission id, or Ray's job id")
    return job or None


def take_over_of(arguments: Message) -> str:
    """Returns what happens where another editor debugs already: ALWAYS, ASK or WATCH. Raises Refused."""
    take_over = arguments.get("takeOver", ALWAYS)
    if take_over not in (ALWAYS, ASK, WATCH):
        raise Refused(f"`takeOver` has to be `{ALWAYS}`, `{ASK}` or `{WATCH}`")
    # Nobody asked for an attachment that the editor repeats by itself: whoever has come meanwhile stays.
    return ASK if RESTART in arguments and take_over == ALWAYS else str(take_over)
