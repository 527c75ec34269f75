"""Lets a debugger and a process show each other that both know Ray's token, which neither of them sends.

    debugger: request `initialize`                                             as to any debug adapter
    process:  response, body.rayside.nonce: 32 random bytes in hex
    debugger: request `raysideAuthorize`, arguments.nonce: 32 random bytes in hex, arguments.proof
    process:  response, body.proof                                             or no success, and the end

From then on the connection is a DAP session with pydevd, from `initialize` on.
"""

from __future__ import annotations

import hashlib
import hmac

# They are the key in the body of the response to `initialize`, and the request that answers it.
CHALLENGE, AUTHORIZE = "rayside", "raysideAuthorize"


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
