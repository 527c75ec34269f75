"""Port-forwarding programs, `kubectl port-forward` and `ssh -L`: their commands and their output.

Sources: client-go's tools/portforward, which kubectl runs, and ssh(1) and ssh_config(5) of OpenSSH.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from rayside.errors import ClusterUnreachable, MissingProgram, NotRunning, RaysideError, SshFailed

# Where a program listens: a port of 127.0.0.1, or a socket in a private folder.
Address = int | Path

# Timeouts in seconds: for the API to list pods, for a host to accept the connection.
_ANSWER, _CONNECT = 15, 10
_SAID = "forwarding"
# Fields of each pod: time of creation, name, and time of deletion if it is being deleted.
_FIELDS = ".metadata.creationTimestamp", ".metadata.name", ".metadata.deletionTimestamp"
_PODS = "{range .items[*]}" + " ".join(f"{{{field}}}" for field in _FIELDS) + r'{"\n"}{end}'
_LISTENS = re.compile(r"Forwarding from 127\.0\.0\.1:(\d{1,5}) -> ")
_SSH_OPTIONS = {
    # No prompt for a passphrase, as the process outlives the terminal. An ssh-agent provides the keys.
    "BatchMode": "yes",
    "ConnectTimeout": str(_CONNECT),
    # A connection shared with other ssh processes would end, or stay open, with them.
    "ControlMaster": "no",
    "ControlPath": "none",
    # The user's configuration may have more forwards for this host, whose ports another ssh holds now.
    "ExitOnForwardFailure": "no",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "IgnoreUnknown": "ForkAfterAuthentication",
    "ForkAfterAuthentication": "no",
    # ssh runs this command once it is logged in and listens; it replaces the user's own.
    "PermitLocalCommand": "yes",
    "LocalCommand": f"echo {_SAID}",
    "RemoteCommand": "none",
    # A lost connection is noticed after three unanswered keepalives, one every five seconds.
    "ServerAliveInterval": "5",
    "ServerAliveCountMax": "3",
    # Only this user may connect to the socket; a socket of an earlier ssh is replaced.
    "StreamLocalBindMask": "0177",
    "StreamLocalBindUnlink": "yes",
}
# Beginnings of ssh's messages about the user's own forwards, or about no failure.
_NO_REASON = ("Warning: Permanently added", "Could not request local forwarding", "bind [", "bind: ")


@dataclass(frozen=True)
class Kubectl:
    """`kubectl port-forward` to the newest running pod with the labels `selector`."""

    program: str
    kubeconfig: str
    context: str
    namespace: str
    selector: str
    # It notices a replaced pod or a lost network only when a connection fails.
    notices_loss: ClassVar[bool] = False
    # Longest pause in seconds between a failed run and the next.
    longest_pause: ClassVar[float] = 2.0

    def require(self) -> None:
        """Raises MissingProgram."""
        if shutil.which(self.program) is None:
            brings = "./invokew up brings it" if "/" in self.program else "install it"
            raise MissingProgram(
                f"{self.program} is not on this machine",
                hint=f"{brings}: https://kubernetes.io/docs/tasks/tools/#kubectl",
            )

    def search(self) -> list[str]:
        """Returns the command whose output lists the possible targets."""
        fields = ["--field-selector", "status.phase=Running", "-o", f"jsonpath={_PODS}"]
        return [*self._words, f"--request-timeout={_ANSWER}s", "get", "pods", "-l", self.selector, *fields]

    def found(self, output: str) -> str:
        """Returns the target, from the output of `search`. Raises NotRunning."""
        pods = [line.split() for line in output.splitlines()]
        staying = [(words[0], words[1]) for words in pods if len(words) == 2]
        if not staying:
            raise NotRunning(f"no pod {self.selector} runs", hint="./invokew status shows what is ready")
        return f"pod/{max(staying)[1]}"

    def command(self, found: str, port: int, socket: Path) -> list[str]:
        """Returns the command that forwards to that port of the target."""
        return [*self._words, "port-forward", "--address", "127.0.0.1", found, f":{port}"]

    def listens(self, said: str, socket: Path) -> Address | None:
        """Returns the address in a line of the program's output, if it says where the program listens."""
        listens = _LISTENS.match(said)
        return int(listens[1]) if listens else None

    def failed(self, said: list[str]) -> RaysideError:
        """Returns the error for a failed forward, from the program's messages."""
        errors = [text for text in said if text.startswith(("error", "Error"))]
        why = (errors or said or ["it printed nothing"])[-1]
        return ClusterUnreachable(
            f"kubectl does not lead to a pod {self.selector}: {why}",
            hint=f"try it by hand: {shlex.join([*self._words, 'get', 'pods', '-l', self.selector])}",
        )

    @property
    def _words(self) -> list[str]:
        where = ["--kubeconfig", self.kubeconfig, "--context", self.context, "--namespace", self.namespace]
        return [self.program, *where]


@dataclass(frozen=True)
class Ssh:
    """`ssh -L` to the loopback address of `host`, from a socket that only this user can connect to."""

    host: str
    notices_loss: ClassVar[bool] = True
    longest_pause: ClassVar[float] = 15.0

    def require(self) -> None:
        if shutil.which("ssh") is None:
            raise MissingProgram("ssh is not on this machine", hint="install OpenSSH's client")

    def search(self) -> list[str]:
        return []

    def found(self, output: str) -> str:
        return self.host

    def command(self, found: str, port: int, socket: Path) -> list[str]:
        options = [word for name, value in _SSH_OPTIONS.items() for word in ("-o", f"{name}={value}")]
        # Nothing after -- is parsed as an option.
        return ["ssh", "-N", "-T", *options, "-L", f"{socket}:127.0.0.1:{port}", "--", found]

    def listens(self, said: str, socket: Path) -> Address | None:
        return socket if said == _SAID and socket.exists() else None

    def failed(self, said: list[str]) -> RaysideError:
        reasons = [text for text in said if not text.startswith(_NO_REASON)]
        why = reasons[-1] if reasons else "it was not let in in time"
        return SshFailed(
            f"ssh does not lead to {self.host}: {why}",
            hint=f"try it by hand, until it asks for nothing: ssh -o BatchMode=yes {self.host} true",
        )


Program = Kubectl | Ssh


def environment(inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns the environment of a program and its children (a ProxyCommand), without our variables."""
    unwanted = ("RAY_AUTH_TOKEN", "PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")
    own = {name: value for name, value in inherited.items() if name not in unwanted}
    # The ssh to a jump host would open a window for a prompt.
    return {**own, "SSH_ASKPASS_REQUIRE": "never"}
