"""Opens a debugger in a Python process of this machine, whatever it runs: Python's own way, from 3.14 on.

`sys.remote_exec` has a process of this user, and of this very Python, run a file between two of its bytecodes
(https://docs.python.org/3.14/library/sys.html#sys.remote_exec).
"""

from __future__ import annotations

import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

# It runs in a thread of its own there: whatever lock the main one holds now, it does not wait for that.
_PROGRAM = """\
def rayside_open():
    import socket, sys
    sys.path.insert(0, {hook!r})
    try:
        from rayside_hook import attach
        # An actor may have come to our call meanwhile.
        listen = getattr(sys.modules.get("debugpy.server.api"), "listen", None)
        is_open = getattr(listen, "called", False) or attach.open_port({user!r})
        answer = "" if is_open else "its environment has no debugpy"
    except BaseException as error:
        answer = f"{{type(error).__name__}}: {{error}}"
    finally:
        sys.path.remove({hook!r})
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as teller:
        teller.sendto(answer.encode()[:400], {address!r})

import threading
threading.Thread(target=rayside_open, name="rayside", daemon=True).start()
del threading, rayside_open
"""


def is_possible() -> bool:
    """Returns whether this Python can."""
    return hasattr(sys, "remote_exec")


def open_port(pid: int, hook: Path, patience: float, user: str = "") -> str:
    """Opens a debugger's port in the process; returns why that failed there, empty where it is open.

    `hook` is the folder of the package `rayside_hook`, `user` the name of who has it opened. Raises
    TimeoutError where the process runs no Python code for `patience` seconds, and OSError or RuntimeError
    where it can't be entered.
    """
    remote_exec: Any = vars(sys)["remote_exec"]
    # Its mode is 0700: nobody else can change what is run there.
    with tempfile.TemporaryDirectory(prefix="rayside-") as folder:
        program, address = Path(folder, "open.py"), str(Path(folder, "answer"))
        program.write_text(_PROGRAM.format(hook=str(hook), address=address, user=user))
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
            listener.bind(address)
            listener.settimeout(patience)
            remote_exec(pid, str(program))
            return listener.recv(1_000).decode(errors="replace")
