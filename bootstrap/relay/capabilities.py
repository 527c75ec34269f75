"""Lists what the relay can do for an editor, and what it refuses, with the reason."""

from __future__ import annotations

from bootstrap.dap.framing import Message

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
