"""Tells a process's debugger of the processes that it starts, which are debugged as well while that wants it.

A fork, and a Python that this one starts, asks at a socket of Linux's abstract names, which leaves no file
behind; child.py has that side. The environment variable PARENT names the socket. Both sides look at the
other's user, as Linux knows it, and the parent at the child's parents: other users of the machine get
nothing, nor do processes that only have the variable.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import struct
import sys
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from .listener import in_background

# It is the name of the socket of the nearest debugged parent, without the zero byte before it.
PARENT = "RAYSIDE_PARENT"
# Our event: a child's process and its port, which is at the address of its parent's.
EVENT = "raysideChild"
# Seconds that a child has to open its port: debugpy is imported first.
PATIENCE = 15.0
# The most children that live with a port of their own: further ones run on, without a debugger.
MOST = 64
# The most bytes of what a child says.
_LONGEST = 256
# The most generations from a child up to this process.
_GENERATIONS = 32
_CMD_WRITE_TO_CONSOLE = 116  # pydevd_comm_constants.py; its text goes to the debugger as it is


def peer(connection: socket.socket) -> tuple[int, int]:
    """Returns the process and the user at the other end, as Linux knows them. Raises OSError."""
    size = struct.calcsize("3i")
    pid, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return pid, user


class Children:
    """Takes the children of this process while its debugger wants them.

    Args:
        invitation: what a child opens its port with: the arguments of `attach.listen`, the token as text.
    """

    def __init__(self, invitation: Mapping[str, Any]) -> None:
        self._invitation = dict(invitation)
        self._name = f"rayside-{os.getpid()}-{secrets.token_hex(16)}"
        self._listening: socket.socket | None = None
        self._asking: dict[socket.socket, None] = {}  # those that are here, until they are debugged
        self._ports: dict[int, int] = {}  # of children that live, by process
        self._changed = threading.Lock()

    def announce(self) -> None:
        """Has the programs that this process starts from now on ask it; does nothing but on Linux."""
        if sys.platform == "linux":
            os.environ[PARENT] = self._name

    @property
    def are_taken(self) -> bool:
        """Returns whether a debugger wants them now."""
        return self._listening is not None

    @property
    def living(self) -> list[dict[str, int]]:
        """Returns the process and the port of each that lives."""
        with self._changed:
            self._ports = {pid: port for pid, port in self._ports.items() if _parent_of(pid)}
            return [{"pid": pid, "port": port} for pid, port in self._ports.items()]

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Takes children until the block ends; those that wait for their debugger by then go on."""
        try:
            listening = socket.socket(socket.AF_UNIX)
            listening.bind(f"\0{self._name}")
            listening.listen(MOST)
        except (OSError, AttributeError):  # This is no Linux.
            yield
            return
        self._listening = listening
        in_background(partial(self._accept, listening))
        try:
            yield
        finally:
            self._listening = None
            with self._changed:
                asking = [*self._asking]
            for each in (listening, *asking):
                with contextlib.suppress(OSError):  # It ends the thread's `accept`, or its `recv`.
                    each.shutdown(socket.SHUT_RDWR)
            listening.close()

    def leave(self) -> None:
        """Closes a fork's copies of the sockets: it is no parent yet."""
        for each in (self._listening, *self._asking):
            if each is not None:
                each.close()
        self._listening = None

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with self._changed:
                is_one_more = len(self._asking) < MOST
                if is_one_more:
                    self._asking[connection] = None
            if is_one_more:
                in_background(partial(self._serve, connection))
            else:
                connection.close()

    def _serve(self, connection: socket.socket) -> None:
        try:
            pid, user = peer(connection)
            if user == os.geteuid() and _is_from_here(pid) and len(self.living) < MOST:
                self._take(connection, pid)
        except (OSError, ValueError, KeyError, TypeError):
            return  # It is none of ours, or has gone.
        finally:
            with self._changed:
                self._asking.pop(connection, None)
            connection.close()

    def _take(self, connection: socket.socket, pid: int) -> None:
        connection.settimeout(PATIENCE)
        connection.sendall(json.dumps(self._invitation).encode() + b"\n")
        with connection.makefile("rb") as answers:
            port = int(json.loads(answers.readline(_LONGEST))["port"])
            with self._changed:
                self._ports[pid] = port
            _tell({"pid": pid, "port": port})
            # Until it is debugged, has ended, or has waited long enough.
            connection.settimeout(None)
            answers.read(1)


def _is_from_here(pid: int) -> bool:
    """Returns whether a process descends from this one; Linux gives an orphan another parent."""
    for _ in range(_GENERATIONS):
        pid = _parent_of(pid)
        if pid in (os.getpid(), 0):
            break
    return pid == os.getpid()


def _parent_of(pid: int) -> int:
    """Returns the parent of a process that lives; 0 of one that has ended, also before it is waited for."""
    try:
        state, parent, *_ = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split(None, 2)
    except OSError:
        return 0
    return 0 if state in "ZX" else int(parent)


def _tell(body: Mapping[str, int]) -> None:
    import pydevd
    from _pydevd_bundle.pydevd_net_command import NetCommand

    message = {"type": "event", "event": EVENT, "body": dict(body)}
    pydevd.get_global_debugger().writer.add_command(
        NetCommand(_CMD_WRITE_TO_CONSOLE, 0, message, is_json=True)
    )
