"""Names what the relay and its editors say to each other beyond DAP."""

# `takeOver` of `attach` says with these what is to happen where another editor debugs the same already.
ALWAYS, ASK, WATCH = "always", "ask", "watch"
# Why an `attach` was refused with ASK: the response says it as body.ray.reason.
BUSY = "busy"
# Why a session ended for an editor: `terminated` says it as body.ray.reason.
TAKEN_OVER, DEBUGGER_LEFT, RELAY_ENDING = "taken-over", "debugger-left", "relay-ending"
# Why a `continued` comes though no thread resumed: the event says it as body.ray.reason.
EXITED = "exited"


def title_of(task: str, pid: int, node_ip: str) -> str:
    """Returns the name of a task's row in an editor's list of threads."""
    return f"{task or 'idle'} · {pid}@{node_ip}"
