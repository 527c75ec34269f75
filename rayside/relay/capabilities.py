"""Capabilities for editors, arguments of `attach`, exception filters, presence of an editor."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from rayside.dap.additions import AGENT, ALWAYS, ASK, AWAY, EVERY, MOST_MISSED, RESTART, WATCH
from rayside.dap.client import STOP_IN_USER_CODE
from rayside.dap.framing import Message
from rayside.relay.schemas import Refused
from rayside.relay.stop_points import Breakpoint, Result, text_of

_CONDITION = {
    "supportsCondition": True,
    "conditionDescription": "a Python expression, in the function where it is raised",
}

# debugpy's capabilities, except those that would end debuggees or need a single process.
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
    "supportsRestartFrame": True,
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
    " then start the job with `submit --debug`",
    "restart": "a Ray cluster is not restarted from here: submit the job again",
    "terminate": "a killed worker has its task run again: cancel the job instead",
    "terminateThreads": "a killed worker has its task run again: cancel the job instead",
}


# Arguments of `attach` that are forwarded to debuggees; all others are not.
_OPTIONS = ("justMyCode", "showReturnValue")


def options_of(arguments: Message) -> Message:
    """Returns debugpy's `attach` arguments for debuggees. Raises Refused."""
    options = {name: arguments[name] for name in _OPTIONS if name in arguments}
    rules = arguments.get("rules") or []
    if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
        raise Refused("`rules` has to be a list of objects")
    # Our rules come first: without them no thread would stop at a `breakpoint()`.
    own_rules = STOP_IN_USER_CODE["rules"]
    return {
        **STOP_IN_USER_CODE,
        **options,
        "rules": [*own_rules, *(rule for rule in rules if rule not in own_rules)],
    }


def mappings_of(arguments: Message) -> list[tuple[str, str]]:
    """Returns pairs of local and remote root from `pathMappings`. Raises Refused."""
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
    """Tracks heartbeats from an editor's forward; without any, presence is unknown.

    Args:
        every: seconds between two heartbeats.
        away: seconds without a heartbeat until the editor counts as gone.

    Attributes:
        left: whether the forward has reported that the editor closed the connection.
    """

    def __init__(self, *, every: float = EVERY, away: float = AWAY) -> None:
        self.left = False
        self._every, self._away = every, away
        self._beats = asyncio.Event()
        self._missed = 0

    @property
    def by_forward(self) -> bool:
        """Returns whether the editor is connected through a forward that sends heartbeats."""
        return self._beats.is_set()

    @property
    def is_silent(self) -> bool:
        """Returns whether the forward would count the connection as lost by now."""
        return self._missed > MOST_MISSED

    def beat(self) -> None:
        self._beats.set()
        self._missed = 0

    async def until_away(self) -> None:
        """Waits until no heartbeat has come for `away` seconds; forever if none ever came."""
        await self._beats.wait()
        # Each pause counts once, however long it was: while this machine sleeps, no heartbeat can arrive.
        while self._missed * self._every < self._away:
            await asyncio.sleep(self._every)
            self._missed += 1


def job_of(arguments: Message) -> str | None:
    """Returns the job that an editor attaches to; None for all jobs. Raises Refused."""
    job = arguments.get("job")
    if job is not None and not isinstance(job, str):
        raise Refused("`job` has to be a string: a submission id, or Ray's job id")
    return job or None


def take_over_of(arguments: Message) -> str:
    """Returns ALWAYS, ASK or WATCH, for the case that another editor debugs already. Raises Refused."""
    take_over = arguments.get("takeOver", ALWAYS)
    if take_over not in (ALWAYS, ASK, WATCH):
        raise Refused(f"`takeOver` has to be `{ALWAYS}`, `{ASK}` or `{WATCH}`")
    agent = arguments.get(AGENT, False)
    if not isinstance(agent, bool):
        raise Refused(f"`{AGENT}` has to be true or false")
    if agent and take_over == ALWAYS:
        return WATCH
    # No user requested an automatic reconnect, so an editor that attached meanwhile stays.
    return ASK if RESTART in arguments and take_over == ALWAYS else str(take_over)


# debugpy needs no tracing for this filter: Ray's post-mortem asks pydevd whether it stops at `uncaught`.
_UNCAUGHT = "uncaught"
# pydevd's names for the filters, in DAP's exceptionOptions.
_MODES = {"raised": "always", "userUnhandled": "userUnhandled", _UNCAUGHT: "unhandled"}
_ALL = "Python Exceptions"
_WITHOUT = "The debugpy of a task can give this filter no condition: there it stops at every exception."


class FilterCondition(Breakpoint):
    """Condition of an exception filter."""

    def __init__(self, name: str, condition: str) -> None:
        super().__init__({"condition": condition})
        self.name = name

    @property
    def place(self) -> str:
        return f"the filter {self.name}"

    def document(self) -> Message:
        """Returns DAP's Breakpoint; unverified if a debuggee does not support a condition on this filter."""
        refusal = self.results.refusal
        return {"verified": False, "message": refusal.message} if refusal else {"verified": True}


@dataclass(frozen=True)
class ExceptionFilters:
    """One editor's exception filters.

    Attributes:
        names: the enabled filters, each once.
        conditions: conditions of filters, by name.
        options: DAP's exceptionOptions.
        asked: DAP's Breakpoint for each requested filter, or the condition that can return it.
    """

    names: tuple[str, ...]
    conditions: Mapping[str, FilterCondition] = field(default_factory=dict)
    options: tuple[Message, ...] = ()
    asked: tuple[Message | FilterCondition, ...] = ()

    @classmethod
    def of(cls, arguments: Message) -> ExceptionFilters:
        """Reads arguments of `setExceptionBreakpoints` that match `REQUESTS`.

        Invalid filters become unverified breakpoints with a message.
        """
        names: dict[str, None] = {}
        conditions: dict[str, FilterCondition] = {}
        options: list[Message] = []
        verdicts: list[Message | FilterCondition] = []
        for name in arguments.get("filters", []):
            if name in _MODES:
                names[name] = None
            verdicts.append(_verdict("" if name in _MODES else _unknown(name)))
        for option in arguments.get("filterOptions", []):
            name, condition = option.get("filterId"), text_of(option, "condition")
            if name not in _MODES:
                verdicts.append(_verdict(_unknown(name)))
                continue
            if condition and name not in names:
                filter_ = FilterCondition(name, condition)
                if filter_.problem:
                    verdicts.append(_verdict(filter_.problem))
                    continue
                conditions[name] = filter_
                verdicts.append(filter_)
            else:
                verdicts.append(_verdict(""))
            names[name] = None
        for option in arguments.get("exceptionOptions", []):
            path = option.get("path") or [{"names": [_ALL]}]
            problem = _problem(option, path)
            if not problem:
                options.append({**option, "path": path})
            verdicts.append(_verdict(problem))
        return cls(tuple(names), conditions, tuple(options), tuple(verdicts))

    @property
    def verdicts(self) -> list[Message]:
        """Returns DAP's Breakpoint for each requested filter."""
        return [each.document() if isinstance(each, FilterCondition) else each for each in self.asked]

    def conditions_set(self, debuggee: Hashable, lacking: object) -> None:
        """Records a debuggee's answer; `lacking`: breakModes for which it does not support a condition."""
        for name, condition in self.conditions.items():
            known = isinstance(lacking, list) and _MODES[name] not in lacking
            condition.results[debuggee] = Result(known, 0, "" if known else _WITHOUT)

    @property
    def needs_tracing(self) -> bool:
        more = any(option["breakMode"] not in ("never", "unhandled") for option in self.options)
        return more or any(name != _UNCAUGHT for name in self.names)

    @property
    def several(self) -> bool:
        """Returns whether one exception may cause more than one stop."""
        return len({*(_MODES[name] for name in self.names), *(o["breakMode"] for o in self.options)}) > 1

    @property
    def arguments(self) -> Message:
        """Returns the arguments of `setExceptionBreakpoints` for debuggees: pydevd ignores filterOptions, and
        with exceptionOptions also the filters."""
        if not self.options and not self.conditions:
            return {"filters": list(self.names)}
        filters = [{"path": [{"names": [_ALL]}], "breakMode": _MODES[name]} for name in self.names]
        return {"filters": [], "exceptionOptions": [*self.options, *filters]}

    @property
    def inner_conditions(self) -> Message:
        """Returns the expression for debuggees of each filter with a condition, by DAP's breakMode."""
        return {
            _MODES[name]: condition.condition()["condition"] for name, condition in self.conditions.items()
        }


def _problem(option: Message, path: Sequence[Message]) -> str:
    if "breakMode" not in option:
        return "An exception option has a breakMode: never, always, unhandled or userUnhandled."
    if not all(segment.get("names") for segment in path):
        return "The path of an exception option is a list of objects with names."
    if _ALL not in path[0]["names"] or any(segment.get("negate") for segment in path):
        return f"The path of an exception option begins with {_ALL!r}, and names what is stopped at."
    return ""


def _unknown(name: object) -> str:
    return f"There is no filter {str(name)[:80]!r}: the relay knows {', '.join(_MODES)}."


def _verdict(problem: str) -> Message:
    return {"verified": False, "message": problem} if problem else {"verified": True}
