"""Names what the relay and its editors say to each other beyond DAP."""

# `takeOver` of `attach` says with these what is to happen where another editor debugs the same already.
ALWAYS, ASK, WATCH = "always", "ask", "watch"
# This argument of `attach` says whether it is of a coding agent: that never takes over, and people's editors
# come before it.
AGENT = "agent"
# Why an `attach` was refused with ASK: the response says it as body.ray.reason.
BUSY = "busy"
# Why a session ended for an editor: `terminated` says it as body.ray.reason.
TAKEN_OVER, DEBUGGER_LEFT, RELAY_ENDING = "taken-over", "debugger-left", "relay-ending"
# The relay has not heard of the editor for AWAY.
UNHEARD = "unheard"
# What a forward says so: the way to the relay is there again; was not to be had; leads to no relay any more;
# is ended, for the forward is.
WAY_BACK, WAY_LOST, RELAY_GONE, FORWARD_ENDED = "way-back", "way-lost", "relay-gone", "forward-ended"
# The `output` by which a forward tells that the way is lost says it as body.ray.reason.
WAITING = "waiting"
# `terminated` asks an editor to attach again by its `restart`, which DAP has the editor send as this argument
# of `attach`: such an `attach` takes over from nobody.
RESTART = "__restart"
RESTARTS = {"ray": "again"}
# By this an editor takes its own session back from its own connection, which to the relay may still be open:
# the relay's answer to `attach` has it as body.ray.ticket, and RESTART brings it. Without the token it is
# worth nothing.
TICKET = "ticket"
LONGEST_TICKET = 64
# Why a `continued` comes though no thread resumed: the event says it as body.ray.reason.
EXITED = "exited"
# `stopped` of a task that a step into `.remote()` led to has the row of the thread that stepped, as
# body.ray.calledBy.
CALLED_BY = "calledBy"
# What a forward and the relay say to each other, as events, within an editor's connection: that the way is
# there, each time; and that it was the editor that ended the connection.
BEAT, LEFT = "rayside-beat", "rayside-left"
# Seconds between two beats, and how many may stay without an answer until the way counts as lost.
EVERY, MOST_MISSED = 5.0, 3
# Seconds without a beat for which the relay keeps what is stopped, for an editor that may come back.
AWAY = 120.0


def title_of(task: str, pid: int, node_ip: str) -> str:
    """Returns the name of a task's row in an editor's list of threads."""
    return f"{task or 'idle'} · {pid}@{node_ip}"
