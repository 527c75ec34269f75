"""Says how OpenSSH's client is run: a socket of this machine leads to a port of another, while it runs.

Source: ssh(1) and ssh_config(5) of OpenSSH.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

# A host may take so many seconds to accept.
_CONNECT = 10
_OPTIONS = {
    # Nobody is asked for a passphrase: the process goes on when no terminal is there. An agent answers.
    "BatchMode": "yes",
    "ConnectTimeout": str(_CONNECT),
    # A connection that others share would end, or go on, with theirs.
    "ControlMaster": "no",
    "ControlPath": "none",
    # The user's configuration may have forwards of its own for this host, which another ssh holds now.
    "ExitOnForwardFailure": "no",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "IgnoreUnknown": "ForkAfterAuthentication",
    "ForkAfterAuthentication": "no",
    "PermitLocalCommand": "no",
    "RemoteCommand": "none",
    # What has gone is noticed after three unanswered questions, one every five seconds.
    "ServerAliveInterval": "5",
    "ServerAliveCountMax": "3",
    # Only this user may connect to the socket; one that an earlier ssh left makes room.
    "StreamLocalBindMask": "0177",
    "StreamLocalBindUnlink": "yes",
}


def command(host: str, socket: Path, port: int) -> list[str]:
    """Returns the command that leads the socket to that port of `host`'s own loopback."""
    options = [word for name, value in _OPTIONS.items() for word in ("-o", f"{name}={value}")]
    # Nothing that follows -- is taken for an option.
    return ["ssh", "-N", "-T", *options, "-L", f"{socket}:127.0.0.1:{port}", "--", host]


def environment(inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns the environment of ssh and of what it runs, such as a ProxyCommand: the user's, not ours."""
    unwanted = ("RAY_AUTH_TOKEN", "PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")
    own = {name: value for name, value in inherited.items() if name not in unwanted}
    # A jump host's ssh would open a window to ask.
    return {**own, "SSH_ASKPASS_REQUIRE": "never"}
