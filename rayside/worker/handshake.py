"""Lets a debugger and a process show each other that both know Ray's token, which neither of them sends.

    debugger: request `initialize`                                             as to any debug adapter
    process:  response, body.rayside.nonce: 32 random bytes in hex
    debugger: request `raysideAuthorize`, arguments.nonce: 32 random bytes in hex, arguments.proof, and
              arguments.user: the name of who debugs, which nothing proves
    process:  response, body.proof, body.job and body.submission: Ray's ids of its job, and body.user: the
              name of whose that is, or of who had it opened, each empty where it knows none; nothing
              proves them                                                      or no success, and the end
    debugger: request `raysideDebug`; or it leaves, where it does not want a process of that job or user.
              arguments.children: whether it debugs the processes that this one starts, too
    process:  response, body.taken; where that is false, body.user: who debugs it now, and the end; where
              children are wanted, body.children: `pid` and `port` of each that lives (see children.py)

From then on the connection is a DAP session with pydevd, from `initialize` on. A debugger of before, which
sends no `user`, has the session after `raysideAuthorize`.
"""

from __future__ import annotations

import hashlib
import hmac

# They are the key in the body of the response to `initialize`, and the request that answers it.
CHALLENGE, AUTHORIZE = "rayside", "raysideAuthorize"
# This request of a debugger that is known makes the process its own.
DEBUG = "raysideDebug"
# The names of users are cut at so many characters.
LONGEST_USER = 64


def proof(token: bytes, role: str, nonces: tuple[str, str], address: tuple[str, int]) -> str:
    """Returns the HMAC-SHA256, in hex, by which `role` shows that it knows the token.

    Args:
        role: "client" or "debuggee".
        nonces: the debuggee's, and the client's.
        address: host and port of the debuggee's end of the connection, as the client dialled them: who
            holds another port can't pass the handshake on to this one.
    """
    host, port = address
    statement = "|".join(("rayside debugger", role, *nonces, host, str(port)))
    return hmac.new(token, statement.encode(), hashlib.sha256).hexdigest()
