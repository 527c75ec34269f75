"""What the relay can do for an editor, and what it refuses, with the reason."""

from __future__ import annotations

from bootstrap.debug.dap import Message

# debugpy's, but what would end debuggees or needs one process.
CAPABILITIES: Message = {
    "supportsConfigurationDoneRequest": True,
    "supportsFunctionBreakpoints": True,
    "supportsConditionalBreakpoints": True,
    "supportsHitConditionalBreakpoints": True,
    "supportsLogPoints": True,
    "supportsEvaluateForHovers": True,
    "supportsSetVariable": True,
    "supportsSetExpression": True,
    "supportsCompletionsRequest": True,
    "supportsModulesRequest": True,
    "supportsValueFormattingOptions": True,
    "supportsExceptionInfoRequest": True,
    "supportsExceptionOptions": True,
    "supportsDelayedStackTraceLoading": True,
    "supportsGotoTargetsRequest": True,
    "supportsStepInTargetsRequest": True,
    "supportsClipboardContext": True,
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
        },
        {
            "filter": "userUnhandled",
            "label": "Exceptions That Leave a Task",
            "description": "Stop where an exception leaves the user's code.",
            "default": False,
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
    "launch": "the relay attaches to a running cluster: request `attach`; ./invokew submit starts a job",
    "restart": "a Ray cluster is not restarted from here: submit the job again",
    "restartFrame": "Python can't run a frame again from its start",
    "terminate": "a killed worker has its task run again: cancel the job instead",
    "terminateThreads": "a killed worker has its task run again: cancel the job instead",
}
