"""Runs the relay of one program: that of `rayside run`, or of a notebook.

It has a folder of this user's alone. In there are `token`, by which a debugger is known to the relay and to
the driver; `ray-token`, which is Ray's, whatever Ray the program joins; and `told.json`, in which the program
says where its driver and its Ray are.
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
_ENDING = 30.0  # seconds for it to detach from all
# What it says on standard output begins so: Python may print something as it starts.
_SAYS = "rayside: "


def command(module: str) -> list[str]:
    """Returns how a module of this package is run, whatever lies in the current folder or on PYTHONPATH.

    The folder of this package comes first on the path, as the only addition to it.
    """
    folder = str(Path(__file__).parents[1])
    path = f"import sys; sys.path[:] = [{folder!r}, *filter(None, sys.path)]"
    return [sys.executable, "-c", f"{path}; import runpy; runpy.run_module({module!r}, run_name='__main__')"]


@contextlib.contextmanager
def own_folder() -> Iterator[Path]:
    """Makes a folder below the state folder, where nobody else can make one of its name; removes it.

    Raises UnsafeFolder.
    """
    runs = default_folders.state_folder() / "runs"
    make_own(runs)
    with tempfile.TemporaryDirectory(prefix="", dir=runs, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@dataclass(frozen=True)
class ProgramRelay:
    """A relay that runs, or is about to.

    Attributes:
        token: the token by which it knows a debugger.
        environment: the program's: it has the name of whom it is debugged for, which is this relay's alone,
            and a Ray that the program starts asks for a token.
    """

    process: subprocess.Popen[str]
    folder: Path
    token: str
    environment: dict[str, str]

    def port(self) -> int:
        """Returns the port, once it listens there. Raises DebuggerGone."""
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
    """Begins a relay on `port` of 127.0.0.1, or on a free one, and ends it.

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
        environment.pop("RAY_AUTH_TOKEN", None)  # Ray takes it first
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
