"""Extensions of DAP between the relay, forwards and editors."""

# Values of `takeOver` in `attach`, for the case that another editor debugs the same tasks.
ALWAYS, ASK, WATCH = "always", "ask", "watch"
# Argument of `attach`: whether the client is a coding agent, which never takes over; people's editors have
# priority.
AGENT = "agent"
# Reason of an `attach` that was refused with ASK: body.ray.reason of the response.
BUSY = "busy"
# Reasons of the end of an editor's session: body.ray.reason of `terminated`.
TAKEN_OVER, DEBUGGER_LEFT, RELAY_ENDING = "taken-over", "debugger-left", "relay-ending"
# The same: no heartbeat from the editor for AWAY.
UNHEARD = "unheard"
# The same, from a forward: the connection to the relay is back; could not be restored; reaches no relay any
# more; ends with the forward.
WAY_BACK, WAY_LOST, RELAY_GONE, FORWARD_ENDED = "way-back", "way-lost", "relay-gone", "forward-ended"
# body.ray.reason of the `output` with which a forward reports a lost connection.
WAITING = "waiting"
# `restart` of `terminated` makes an editor attach again, and DAP makes it send that value as this argument
# of `attach`: such an `attach` takes over from no other editor.
RESTART = "__restart"
RESTARTS = {"ray": "again"}
# With a ticket, an editor takes over its own session, whose old connection may still be open at the relay:
# the relay's answer to `attach` has it as body.ray.ticket, and RESTART contains it. It is useless without the
# token.
TICKET = "ticket"
LONGEST_TICKET = 64
# body.ray.reason of a `continued` event whose thread has ended, and not resumed.
EXITED = "exited"
# body.ray.calledBy of `stopped`, for a task after a step into `.remote()`: the thread that stepped.
CALLED_BY = "calledBy"
# Events between a forward and the relay, in an editor's connection: a heartbeat; and that the editor has
# closed the connection.
BEAT, LEFT = "rayside-beat", "rayside-left"
# Seconds between two heartbeats, and unanswered ones until the connection counts as lost.
EVERY, MOST_MISSED = 5.0, 3
# Seconds without a heartbeat for which the relay keeps stopped tasks, for an editor that may reconnect.
AWAY = 120.0


def title_of(task: str, pid: int, node_ip: str) -> str:
    """Returns the name of a task's row in an editor's list of threads."""
    return f"{task or 'idle'} · {pid}@{node_ip}"
