"""Relay process for one program: for `rayside run`, or for a notebook.

Its private folder contains `token`, which authenticates a debugger to the relay and to the driver;
`ray-token`, the token of the Ray cluster that the program starts or joins; and `told.json`, in which the
program reports the addresses of its driver and its Ray cluster.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rayside import default_folders
from rayside.errors import DebuggerGone, PortTaken
from rayside.own_folder import make_own
from rayside.ports import port_holder
from rayside.private_file import write_private
from rayside.ray import authentication
from rayside.relay.config import Config
from rayside.users import OF_A_RUN
from rayside.worker.handshake import USER_VARIABLE
from rayside.worker.run_driver import RAYS_TOKEN, TOKEN

TOLD = "told.json"
_ENDING = 30.0  # timeout in seconds for the relay to detach from all debuggees
# Prefix of the relay's line on standard output: Python may print other lines at its start.
_SAYS = "rayside: "


def command(module: str) -> list[str]:
    """Returns the command line of a module of this package, whatever is in the current folder or PYTHONPATH.

    It only adds the folder of this package to sys.path, as the first entry.
    """
    folder = str(Path(__file__).parents[1])
    path = f"import sys; sys.path[:] = [{folder!r}, *filter(None, sys.path)]"
    return [sys.executable, "-c", f"{path}; import runpy; runpy.run_module({module!r}, run_name='__main__')"]


@contextlib.contextmanager
def own_folder() -> Iterator[Path]:
    """Makes a folder below the private state folder, and removes it on exit from the context.

    Raises UnsafeFolder.
    """
    runs = default_folders.state_folder() / "runs"
    make_own(runs)
    with tempfile.TemporaryDirectory(prefix="", dir=runs, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@dataclass(frozen=True)
class ProgramRelay:
    """Relay process that runs, or is starting.

    Attributes:
        token: the token that authenticates a debugger.
        environment: the program's environment: its user name for debugging belongs to this relay alone,
            and a Ray cluster that the program starts requires a token.
    """

    process: subprocess.Popen[str]
    folder: Path
    token: str
    environment: dict[str, str]

    def port(self) -> int:
        """Waits until the relay listens; returns its port. Raises DebuggerGone."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(_SAYS):
                return int(line.removeprefix(_SAYS))
        log = (self.folder / "relay.log").read_text(errors="replace").strip()
        raise DebuggerGone(
            f"the relay did not start: {log[-2000:]}",
            hint="run it again; if it happens twice, please report it",
        )


@contextlib.contextmanager
def begun(folder: Path, port: int = 0) -> Iterator[ProgramRelay]:
    """Starts a relay on `port` of 127.0.0.1, or on a free one; ends it on exit from the context.

    Raises PortTaken, CredentialsRefused.
    """
    if port and (holder := port_holder(port)):
        raise PortTaken(f"port {port} is taken, by {holder.words}", hint="--listen 0 takes a free one")
    user, token, file = f"{OF_A_RUN}{secrets.token_hex(8)}", secrets.token_urlsafe(32), folder / "relay.json"
    environment = {**os.environ, USER_VARIABLE: user}
    mode = authentication.mode_here()
    rays = authentication.token("") if mode == authentication.TOKEN else secrets.token_urlsafe(32)
    if not mode:
        environment |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(folder / RAYS_TOKEN)}
        environment.pop("RAY_AUTH_TOKEN", None)  # Ray prefers it to the file.
    write_private(folder / TOKEN, token)
    write_private(folder / RAYS_TOKEN, rays)
    told = str(folder / TOLD)
    config = Config("127.0.0.1", port, "", folder / TOKEN, shared_files=True, user=user, program=told)
    write_private(file, config.document())
    words, pipe = [*command("rayside.relay"), "--config", str(file)], subprocess.PIPE
    with (
        (folder / "relay.log").open("w") as log,
        subprocess.Popen(
            words, stdin=pipe, stdout=pipe, stderr=log, text=True, start_new_session=True
        ) as process,
    ):
        try:
            yield ProgramRelay(process, folder, token, environment)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(_ENDING)
            except subprocess.TimeoutExpired:
                process.kill()
