"""Debugger port of a process: pydevd after a handshake that requires Ray's token.

debugpy's own server has no authentication, and with pydevd's server any client can end the session of
another. So this module listens: each connection gets seconds, and a few messages of limited length, for the
handshake (handshake.py), and is only then passed to pydevd.
This relies on pydevd, debugpy's engine: `PyDB` in pydevd.py and `ReaderThread` in pydevd_comm.py (1.8.22).
"""

from __future__ import annotations

import contextlib
import hmac
import json
import secrets
import socket
import sys
import threading
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from . import handshake, tracing, workarounds
from .children import Children, OwnSocket
from .handshake import AUTHORIZE, CHALLENGE, DEBUG, LONGEST_USER, proof

# Timeout in seconds of the whole handshake, which usually takes milliseconds.
_PATIENCE = 5.0
# Timeout in seconds for an authenticated client to look up the process's job in Ray.
_CHOOSING = 60.0
# Limit in bytes of a handshake message's header, and of its body: `initialize` has some hundred.
_LONGEST = 4096
# Limit: connections in the handshake at the same time; one more ends the oldest.
_MOST = 8
# Limit: authenticated clients that choose at the same time, one for each relay; one more ends the oldest.
_MOST_CHOOSING = 32
# Timeout in seconds for a new debugger to wait for the end of the previous session, which takes a moment.
_CHANGING = 1.0
_ASKS = "this port asks for a proof that you know Ray's token: attach by way of the debug relay"
# TCP keepalive: a connection ends when its peer has not answered for a minute; the task then resumes. Seconds
# of idle time before probes, and between probes; with TCP_USER_TIMEOUT (in milliseconds, also for sent data)
# Linux does not count the probes: https://man7.org/linux/man-pages/man7/tcp.7.html
_PROBED = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 5, "TCP_USER_TIMEOUT": 60_000}


def rays_token() -> bytes:
    """Returns Ray's authentication token in this process; empty if the Ray cluster requires none."""
    try:
        from ray._raylet import AuthenticationTokenLoader
    except ImportError:  # Ray before 2.52
        return b""
    header = dict(AuthenticationTokenLoader.instance().get_token_for_http_header())
    return str(next(iter(header.values()), "")).removeprefix("Bearer ").encode()


class Listener:
    """Listens from `open` on, until the process ends.

    `user` is the user who had the port opened, and `by_driver` the metadata that the job's driver has sent,
    each if known (see handshake.py). `children` are reported to a debugger that accepts them.
    """

    def __init__(
        self,
        token: bytes,
        user: str = "",
        by_driver: Mapping[str, str] | None = None,
        children: Children | None = None,
    ) -> None:
        self._children, self._wants_children = children, False
        self._token, self._user, self._by_driver = token, user, by_driver or {}
        self._socket: OwnSocket | None = None
        self._knocking: list[socket.socket] = []  # connections in the handshake, oldest first
        self._choosing: list[socket.socket] = []  # authenticated connections, which may leave; oldest first
        self._attached: socket.socket | None = None
        self._debugger = ""  # user of the attached debugger
        self._changed = threading.Condition()  # for changes of these lists and attributes

    def open(self, host: str) -> int:
        """Starts pydevd here, listens on `host`, and returns the port. Raises OSError, RuntimeError."""
        listening = socket.create_server((host, 0), backlog=_MOST)
        self._socket = OwnSocket(fileno=listening.detach())
        _start_pydevd()
        tracing.in_background(self._accept)
        return int(self._socket.getsockname()[1])

    def close(self) -> None:
        """Closes a fork's copies of the sockets: no thread of the fork listens to them."""
        for each in (self._socket, self._attached, *self._knocking, *self._choosing):
            if each is not None:
                each.close()
        if self._children is not None:
            self._children.leave()

    def _accept(self) -> None:
        assert self._socket is not None
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                if self._socket.fileno() < 0:
                    return
                time.sleep(0.1)  # too many open files, which may be temporary
                continue
            with self._changed:
                self._knocking.append(connection)
                _end_oldest(self._knocking, _MOST)
            tracing.in_background(partial(self._serve, connection))

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                if self._is_admitted(connection):
                    with self._children_taken():
                        _debug(connection)
            finally:
                with self._changed:
                    if self._attached is connection:  # also if it ended during its admission
                        self._attached = None
                        self._changed.notify_all()

    def _children_taken(self) -> contextlib.AbstractContextManager[None]:
        if self._children is None or not self._wants_children:
            return contextlib.nullcontext()
        return self._children.taken()

    def _is_admitted(self, connection: socket.socket) -> bool:
        try:
            return self._admits(connection)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return False  # not a debugger of Rayside, or it has left
        finally:
            with self._changed:
                self._waits_no_more(connection)

    def _waits_no_more(self, connection: socket.socket) -> None:
        """Removes a connection from the lists of pending ones; the caller holds the lock."""
        for connections in (self._knocking, self._choosing):
            if connection in connections:
                connections.remove(connection)

    def _admits(self, connection: socket.socket) -> bool:
        deadline = time.monotonic() + _PATIENCE
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        nonce = secrets.token_hex(32)
        first = _receive(connection, deadline)
        if first["command"] != "initialize":
            _answer(connection, first, {}, _ASKS)
            return False
        # Reveals nothing about the process: the client is not authenticated yet.
        _answer(connection, first, {CHALLENGE: {"nonce": nonce}, "supportsConfigurationDoneRequest": True})
        request = _receive(connection, deadline)
        if request["command"] != AUTHORIZE:
            _answer(connection, request, {}, _ASKS)
            return False
        arguments = request["arguments"]
        nonces, address = (nonce, str(arguments["nonce"])), connection.getsockname()[:2]
        expected = proof(self._token, "client", nonces, address)
        received = str(arguments["proof"]).encode("utf-8", "replace")
        if not hmac.compare_digest(received, expected.encode()):
            _answer(connection, request, {}, _ASKS)
            return False
        own = {"proof": proof(self._token, "debuggee", nonces, address)}
        if "user" not in arguments:  # a debugger of an earlier version
            if not self._takes(connection, ""):
                _answer(connection, request, {}, "another debugger is attached to this process")
                return False
            _answer(connection, request, own)
            return True
        self._introduced(connection)
        _answer(connection, request, {**own, **handshake.claims(self._by_driver, self._user)})
        request = _receive(connection, time.monotonic() + _CHOOSING)
        if request["command"] != DEBUG:  # It leaves.
            _answer(connection, request, {})
            return False
        taken = self._takes(connection, str(arguments["user"])[:LONGEST_USER])
        children: dict[str, Any] = {}
        if taken and self._children is not None and (request.get("arguments") or {}).get("children") is True:
            self._wants_children = True
            children = {"children": self._children.living}
        _answer(connection, request, {"taken": taken, "user": "" if taken else self._debugger, **children})
        return taken

    def _introduced(self, connection: socket.socket) -> None:
        """Marks a connection as authenticated: unauthenticated clients can't displace it any more."""
        with self._changed:
            # The connection is always in one of the lists, in case another thread forks.
            self._choosing.append(connection)
            if connection in self._knocking:
                self._knocking.remove(connection)
            _end_oldest(self._choosing, _MOST_CHOOSING)

    def _takes(self, connection: socket.socket, user: str) -> bool:
        """Attaches the debugger unless another one is attached to the process; returns whether it could."""
        with self._changed:
            free = self._changed.wait_for(lambda: self._attached is None, _CHANGING)
            if free:
                self._attached, self._debugger, self._wants_children = connection, user, False
                # Immediately: a connection that arrives before the answer would end this one as the oldest.
                self._waits_no_more(connection)
        return free


def _end_oldest(connections: list[socket.socket], most: int) -> None:
    """Ends the oldest connection if there are more than `most`."""
    if len(connections) > most:
        with contextlib.suppress(OSError):  # This interrupts its thread's `recv`; the thread closes it.
            connections.pop(0).shutdown(socket.SHUT_RDWR)


def _receive(connection: socket.socket, deadline: float) -> dict[str, Any]:
    """Reads one DAP message, without reading beyond it. Raises OSError, ValueError."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        if len(head) >= _LONGEST:
            raise ValueError("a header that is too long")
        head += _bytes(connection, 1, deadline)
    length = int(head.partition(b":")[2]) if head.lower().startswith(b"content-length:") else -1
    if not 0 <= length <= _LONGEST:
        raise ValueError("no length, or one that is too long")
    message = json.loads(_bytes(connection, length, deadline))
    if message["type"] != "request" or not isinstance(message["seq"], int):
        raise ValueError("not a request")
    return dict(message)


def _bytes(connection: socket.socket, count: int, deadline: float) -> bytes:
    data = b""
    while len(data) < count:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        piece = connection.recv(count - len(data))
        if not piece:
            raise ConnectionResetError
        data += piece
    return data


def _answer(connection: socket.socket, request: dict[str, Any], body: Any, refusal: str = "") -> None:
    response = {
        "seq": request["seq"],
        "type": "response",
        "request_seq": request["seq"],
        "command": str(request["command"]),
        "success": not refusal,
        "body": {"error": {"id": 1, "format": refusal}} if refusal else body,
        **({"message": refusal} if refusal else {}),
    }
    content = json.dumps(response).encode()
    connection.sendall(b"Content-Length: %d\r\n\r\n%b" % (len(content), content))


# --- pydevd ------------------------------------------------------------------------------


def _start_pydevd() -> None:
    """Starts pydevd as `debugpy.listen(in_process_debug_adapter=True)` does, without pydevd's own port."""
    from debugpy.server import api

    if api.listen.called:
        raise RuntimeError("this process listens for a debugger already: debugpy.listen() was called")
    import pydevd

    wait = pydevd.PyDB.create_wait_for_connection_thread
    pydevd.PyDB.create_wait_for_connection_thread = lambda _: None
    try:
        api._settrace(  # type: ignore[no-untyped-call]
            host="127.0.0.1",
            port=0,
            suspend=False,
            wait_for_ready_to_run=False,
            block_until_connected=False,
            # Without pydevd's own debugging of child processes, which would wait for debuggers.
            patch_multiprocessing=False,
            # Traces neither debugpy nor this package, whose threads start while others are stopped.
            dont_trace_start_patterns=(str(sys.modules["debugpy"].__path__[0]), workarounds.folder()),
            dont_trace_end_patterns=("debugpy_launcher.py",),
        )
    finally:
        pydevd.PyDB.create_wait_for_connection_thread = wait
    api.listen.called = True


def _debug(connection: socket.socket) -> None:
    """Runs a debug session; at its end, for whatever reason, stopped threads resume."""
    import pydevd
    from _pydevd_bundle.pydevd_api import PyDevdAPI
    from _pydevd_bundle.pydevd_comm import WriterThread
    from _pydevd_bundle.pydevd_constants import NULL

    _notice_when_gone(connection)
    db = pydevd.get_global_debugger()
    db.initialize_network(connection, terminate_on_socket_close=False)
    reader, writer = db.reader, db.writer
    reader.join()
    with db._main_lock:
        db.enable_output_redirection(False, False)
        PyDevdAPI().request_disconnect(db, resume_threads=True)
        db.writer = WriterThread(NULL, db, terminate_on_socket_close=False)
    writer.do_kill_pydev_thread()


def _notice_when_gone(connection: socket.socket) -> None:
    """Ends the connection when its peer is unreachable, also while this process sends nothing."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _PROBED.items():
        if hasattr(socket, name):  # macOS lacks two of them
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
