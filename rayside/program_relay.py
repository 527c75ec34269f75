"""Runs the relay of one program: that of `rayside run`, or of a notebook.

It has a folder of this user's alone. In there are `token`, by which the debugger is known, and `told.json`,
in which the program says where its driver and its Ray are.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rayside.errors import DebuggerGone, PortTaken
from rayside.ports import port_holder
from rayside.private_file import write_private
from rayside.ray import authentication
from rayside.relay.config import Config
from rayside.worker.handshake import USER_VARIABLE

TOLD = "told.json"
# Not by -m, which would look for this package in the current folder first.
RUN = "import runpy, sys; sys.path[:] = filter(None, sys.path); runpy.run_module({!r}, run_name='__main__')"
_ENDING = 30.0  # seconds for it to detach from all


@dataclass(frozen=True)
class ProgramRelay:
    """A relay that runs, or is about to.

    Attributes:
        token: the token by which it knows a debugger.
        variables: the variables of the program's environment: the name of whom it is debugged for, which is
            this relay's alone, and those by which a Ray that the program starts asks for the token, too.
    """

    process: subprocess.Popen[bytes]
    folder: Path
    token: str
    variables: Mapping[str, str]

    def port(self) -> int:
        """Returns the port, once it listens there. Raises DebuggerGone."""
        assert self.process.stdout is not None
        if said := self.process.stdout.readline():
            return int(said)
        log = (self.folder / "relay.log").read_text(errors="replace").strip()
        raise DebuggerGone(
            f"the relay did not start: {log[-2000:]}",
            hint="run it again; if it happens twice, please report it",
        )


@contextlib.contextmanager
def begun(folder: Path, port: int = 0) -> Iterator[ProgramRelay]:
    """Begins a relay on `port` of 127.0.0.1, or on a free one, and ends it.

    Raises PortTaken, CredentialsRefused.
    """
    if port and (holder := port_holder(port)):
        raise PortTaken(f"port {port} is taken, by {holder.words}", hint="--listen 0 takes a free one")
    token_file, file = folder / "token", folder / "relay.json"
    variables = {USER_VARIABLE: f"rayside run {secrets.token_hex(8)}"}
    if os.environ.get("RAY_AUTH_MODE") == "token":
        token = authentication.token("")
    else:
        token = secrets.token_urlsafe(32)
        if "RAY_AUTH_MODE" not in os.environ:
            variables |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token_file)}
    write_private(token_file, token)
    config = Config(
        *("127.0.0.1", port, "", token_file),
        shared_files=True,
        user=variables[USER_VARIABLE],
        program=str(folder / TOLD),
    )
    write_private(file, config.document())
    command: list[str | Path] = [sys.executable, "-c", RUN.format("rayside.relay"), "--config", file]
    pipe = subprocess.PIPE
    with (
        (folder / "relay.log").open("wb") as log,
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, start_new_session=True) as process,
    ):
        try:
            yield ProgramRelay(process, folder, token, variables)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(_ENDING)
            except subprocess.TimeoutExpired:
                process.kill()
