"""Names what the relay and its editors say to each other beyond DAP."""

# `takeOver` of `attach` says with these what is to happen where another editor debugs the same already.
ALWAYS, ASK, WATCH = "always", "ask", "watch"
# Why an `attach` was refused with ASK: the response says it as body.ray.reason.
BUSY = "busy"
# Why a session ended for an editor: `terminated` says it as body.ray.reason.
TAKEN_OVER, DEBUGGER_LEFT, RELAY_ENDING = "taken-over", "debugger-left", "relay-ending"
# Why a `continued` comes though no thread resumed: the event says it as body.ray.reason.
EXITED = "exited"
