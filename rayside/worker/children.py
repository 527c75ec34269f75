"""Debugging of child processes, the parent's side: reports each child to a debugger that accepts children.

A fork, or a Python program that this process starts, sends a request to an abstract Unix socket, which leaves
no file; child.py is the child's side. The field `parents` of debug_config.py names the socket. Both sides
check the peer's user, as the kernel reports it, and that the child descends from the parent: other users, and
other processes that have the variable or the name, are rejected. So are children in namespaces of their own:
a process that is isolated from its parent must not get Ray's token.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from . import debug_config, tracing

# Attribute of pydevd's debugger with the process's `Children`, for the relay.
ATTRIBUTE = "rayside_children"
# Rayside's event: the pid and the port of a child, which listens at its parent's address.
EVENT = "raysideChild"
# Timeout in seconds for a child to open its port, including the import of debugpy.
PATIENCE = 15.0
# Limit: live children with a port; further ones run without a debugger.
MOST = 64
# Limit in bytes of a child's answer.
_LONGEST = 256
# Limit: generations from a child up to this process.
_GENERATIONS = 32
# Too many open files, which may be temporary: seconds until a retry.
_FULL = (errno.EMFILE, errno.ENFILE)
_PAUSE = 0.1
_CMD_WRITE_TO_CONSOLE = 116  # pydevd_comm_constants.py; its text is sent to the debugger unchanged


def peer(connection: socket.socket) -> tuple[int, int]:
    """Returns the peer's process and user ids, from the kernel. Raises OSError."""
    size = struct.calcsize("3i")
    pid, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return pid, user


class OwnSocket(socket.socket):
    """Socket that fails if the program has closed its descriptor, which may be another file's by then.

    A program may close all descriptors, as daemons do, and open its own with the same numbers.
    """

    __slots__ = ("_file",)

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._file = self._now()

    def _now(self) -> tuple[int, int] | None:
        try:
            status = os.fstat(self.fileno())
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def _check(self) -> None:
        if self.fileno() >= 0 and self._now() != self._file:
            self.detach()
            raise ConnectionAbortedError("the program has closed this socket")

    def accept(self) -> tuple[OwnSocket, Any]:
        self._check()
        descriptor, address = self._accept()  # type: ignore[attr-defined]
        return OwnSocket(fileno=descriptor), address

    def recv(self, *arguments: Any) -> bytes:
        self._check()
        return super().recv(*arguments)

    def send(self, *arguments: Any) -> int:
        self._check()
        return super().send(*arguments)

    def sendall(self, *arguments: Any) -> None:
        self._check()
        super().sendall(*arguments)

    def shutdown(self, how: int) -> None:
        self._check()
        super().shutdown(how)

    def close(self) -> None:
        try:
            self._check()
        except ConnectionAbortedError:
            return
        super().close()


class Children:
    """Serves child processes of this process while its debugger accepts them.

    Args:
        invitation: a child's arguments for `attach.listen`, with the token as text.
    """

    def __init__(self, invitation: Mapping[str, Any]) -> None:
        self._invitation = dict(invitation)
        self._name = f"rayside-{os.getpid()}-{secrets.token_hex(16)}"
        self._listening: socket.socket | None = None
        self._asking: dict[socket.socket, int] = {}  # pids of children that wait for the debugger
        self._ports: dict[int, int] = {}  # ports of live children, by pid
        self._changed = threading.Lock()

    def announce(self) -> None:
        """Makes programs that this process starts from now on ask it for a debugger; Linux only."""
        if sys.platform == "linux":
            debug_config.add_parent(self._name)

    @property
    def are_taken(self) -> bool:
        """Returns whether a debugger accepts children now."""
        return self._listening is not None

    @property
    def living(self) -> list[dict[str, int]]:
        """Returns the pid and the port of each live child."""
        with self._changed:
            self._ports = {pid: port for pid, port in self._ports.items() if _lives(pid)}
            return [{"pid": pid, "port": port} for pid, port in self._ports.items()]

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Accepts children until the block ends; children that still wait for a debugger then resume."""
        import pydevd

        if sys.platform != "linux":
            yield
            return
        listening = OwnSocket(socket.AF_UNIX)
        try:
            listening.bind(f"\0{self._name}")
            listening.listen(MOST)
            tracing.in_background(partial(self._accept, listening))
        except (OSError, RuntimeError) as error:  # The name is in use, or no thread can be started.
            listening.close()
            sys.stderr.write(f"rayside: processes that this one starts are not debugged: {error}\n")
            yield
            return
        debugger = pydevd.get_global_debugger()
        if debugger is not None:  # None while the process ends
            setattr(debugger, ATTRIBUTE, self)
        self._listening = listening
        try:
            yield
        finally:
            self._listening = None
            with self._changed:
                asking = [*self._asking]
            for each in (listening, *asking):
                with contextlib.suppress(OSError):  # This interrupts the thread's `accept` or `recv`.
                    each.shutdown(socket.SHUT_RDWR)
            listening.close()

    def go_on(self, pid: int) -> None:
        """Resumes a waiting child that the debugger does not attach to."""
        with self._changed:
            waiting = [connection for connection, asking in self._asking.items() if asking == pid]
        for connection in waiting:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def leave(self) -> None:
        """Closes a fork's copies of the parent's sockets."""
        for each in (self._listening, *self._asking):
            if each is not None:
                each.close()
        self._listening = None

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                if self._listening is not listening:
                    return
                time.sleep(_PAUSE)
                continue
            with self._changed:
                is_one_more = len(self._asking) < MOST
                if is_one_more:
                    self._asking[connection] = 0
            try:
                if is_one_more:
                    tracing.in_background(partial(self._serve, connection))
                    continue
            except RuntimeError:  # No thread can be started, as when Python ends.
                with self._changed:
                    self._asking.pop(connection, None)
            connection.close()

    def _serve(self, connection: socket.socket) -> None:
        try:
            pid, user = peer(connection)
            if user == os.geteuid() and self._is_ours(pid) and len(self.living) < MOST:
                self._take(connection, pid)
        except (OSError, ValueError, KeyError, TypeError):
            return  # The peer is no valid child, or has ended.
        finally:
            with self._changed:
                self._asking.pop(connection, None)
            connection.close()

    def _is_ours(self, pid: int) -> bool:
        while True:
            try:
                return descends(pid, os.getpid())
            except OSError as error:
                if error.errno not in _FULL or not self.are_taken:
                    raise
                time.sleep(_PAUSE)

    def _take(self, connection: socket.socket, pid: int) -> None:
        connection.settimeout(PATIENCE)
        connection.sendall(json.dumps(self._invitation).encode() + b"\n")
        with connection.makefile("rb") as answers:
            port = int(json.loads(answers.readline(_LONGEST))["port"])
            with self._changed:
                self._ports[pid] = port
                self._asking[connection] = pid
            _tell({"pid": pid, "port": port})
            # Until it is debugged, has ended, or its timeout has passed.
            connection.settimeout(None)
            answers.read(1)


def descends(pid: int, ancestor: int) -> bool:
    """Returns whether a process descends from another one, in the same namespaces.

    Linux gives an orphan a new parent. Raises OSError if /proc can't be read.
    """
    for kind in ("pid", "user"):
        # Linux reports the pid of a peer in another namespace as a pid of this namespace, or as 0.
        if len({Path(f"/proc/{each}/ns/{kind}").readlink() for each in (pid, ancestor)}) != 1:
            return False
    for _ in range(_GENERATIONS):
        pid = _parent_of(pid)
        if pid in (ancestor, 0):
            break
    return pid == ancestor


def _parent_of(pid: int) -> int:
    """Returns the parent's pid of a live process; 0 for an ended process, also for a zombie.

    Raises OSError if /proc can't be read.
    """
    try:
        status = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    _, _, fields = status.rpartition(")")  # The program's name before it may be any text.
    state, parent, *_ = fields.split(None, 2)
    return 0 if state in "ZX" else int(parent)


def _lives(pid: int) -> bool:
    try:
        return bool(_parent_of(pid))
    except OSError:
        return True  # unknown


def _tell(body: Mapping[str, int]) -> None:
    import pydevd
    from _pydevd_bundle.pydevd_net_command import NetCommand

    message = {"type": "event", "event": EVENT, "body": dict(body)}
    pydevd.get_global_debugger().writer.add_command(
        NetCommand(_CMD_WRITE_TO_CONSOLE, 0, message, is_json=True)
    )
