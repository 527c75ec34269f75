"""Loopback connections: they bypass proxies, and send Ray's token to no other user of this machine."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import pwd
import socket
import struct
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from rayside.errors import StrangerListens

_NAMES = ("127.0.0.1", "localhost")
_VARIABLES = ("NO_PROXY", "no_proxy")
# Timeout in seconds for a connection within this machine.
_CONNECT = 2.0

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def without_proxy(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns variables that keep programs with `environment` from using a proxy to reach this machine."""
    return {name: ",".join(filter(None, (environment.get(name), *_NAMES))) for name in _VARIABLES}


def proxy_for(url: str) -> str | None:
    """Returns the proxy that the environment names for `url`; None for this machine's own addresses."""
    from requests.utils import get_environ_proxies, select_proxy

    return None if is_loopback(url) else select_proxy(url, get_environ_proxies(url))


def is_loopback(url: str) -> bool:
    """Returns whether the host of `url` is a loopback address."""
    host = urlsplit(url).hostname or ""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def require_own(connection: socket.socket, trusted: Collection[int] = ()) -> None:
    """Checks that the peer of a TCP connection to a loopback address is this user, or a `trusted` uid.

    Call it before sending a secret: any user may have listened on the port first. It checks the open
    connection, so nobody can take the port in between. Root is refused too: a program of root may listen
    for another user, as a forward does. The caller is responsible for connections to other machines.

    Linux reports the owner of any socket (sock_diag(7), and /proc/net/tcp, proc_pid_net(5)). Other systems
    show only this user's processes: if none of them listens on the port, another user does.

    Raises StrangerListens; OSError if the connection has ended.
    """
    (host, port), own = _end(connection.getpeername()), _end(connection.getsockname())
    if not host.is_loopback:
        return
    allowed = {os.geteuid(), *trusted}
    try:
        owners = _owners((host, port), own)
    except (OSError, ValueError):
        owners = {os.geteuid()} if _is_ours(port) else set()
    if not owners or owners - allowed:
        who = ", ".join(_name(uid) for uid in sorted(owners - allowed)) or "another user"
        raise StrangerListens(
            f"port {port} is held by a program of {who}: it was sent nothing",
            hint="./invokew doctor says which setting chooses another port",
        )


def require_own_listener(url: str, trusted: Collection[int] = ()) -> None:
    """Does the same check for the listener at `url`, before a program connects to it with the token.

    Does nothing without a listener. Raises StrangerListens.
    """
    parts = urlsplit(url)
    with contextlib.suppress(OSError):
        address = parts.hostname or "", parts.port or 80
        with socket.create_connection(address, timeout=_CONNECT) as connection:
            require_own(connection, trusted)


def _owners(server: tuple[Address, int], client: tuple[Address, int]) -> set[int]:
    """Returns the uid at the far end of a connection, or of the listener before it accepts the connection.

    Raises OSError, ValueError if the kernel does not report it.
    """
    try:
        return {_owner(server, client)}
    except (OSError, AttributeError, struct.error):  # not Linux, or Linux without sock_diag
        return _owners_by_table(server, client)


def _owner(server: tuple[Address, int], client: tuple[Address, int]) -> int:
    """Returns the same by one request to Linux, however many sockets exist: reading its table takes 5 ms and
    more, for each debuggee on this machine."""
    nobody = type(server[0])(0), 0
    # A connection without an inode waits to be accepted, and has no owner.
    for far_end in (client, nobody):
        state, uid, inode = _ask_kernel(server, far_end)
        if inode and (far_end is client or state == _LISTENS):
            return uid
    raise FileNotFoundError


# Constants of linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h and net/tcp_states.h.
_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST = 4, 20, 1
_LISTENS = 10
_HEADER = struct.Struct("=IHHII")  # nlmsghdr
_WHICH = struct.Struct("=BBBBI")  # inet_diag_req_v2, without the ends
_ANSWER = struct.Struct("=4x48x12xII")  # inet_diag_msg: its uid and inode


def _ask_kernel(near: tuple[Address, int], far: tuple[Address, int]) -> tuple[int, int, int]:
    """Returns the state, uid and inode of the TCP socket with these ends, or of the listener at the near one.

    Raises OSError if there is no such socket, or Linux has no sock_diag.
    """
    family = socket.AF_INET if near[0].version == 4 else socket.AF_INET6
    ports = struct.pack("!HH", near[1], far[1])
    ends = b"".join(address.packed.ljust(16, b"\0") for address, _ in (near, far))
    ends += struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)  # any interface, no cookie
    which = _WHICH.pack(family, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF) + ports + ends
    head = _HEADER.pack(_HEADER.size + len(which), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(_CONNECT)
        kernel.sendto(head + which, (0, 0))
        answer, sender = kernel.recvfrom(8192)
    if sender[0] != 0 or _HEADER.unpack_from(answer)[1] != _SOCK_DIAG_BY_FAMILY:
        raise FileNotFoundError
    uid, inode = _ANSWER.unpack_from(answer, _HEADER.size)
    return answer[_HEADER.size + 1], uid, inode


def _owners_by_table(server: tuple[Address, int], client: tuple[Address, int]) -> set[int]:
    listening: dict[Address, int] = {}
    ending = f":{server[1]:04X}"
    for line in _sockets():
        columns = line.split()
        if not columns[1].endswith(ending):
            continue
        here, uid = _address(columns[1]), int(columns[7])
        # A connection without an inode waits to be accepted, and has no owner.
        if here == server and _address(columns[2]) == client and columns[9] != "0":
            return {uid}
        if columns[3] == "0A":
            listening[here[0]] = uid
    if server[0] in listening:
        return {listening[server[0]]}
    return {uid for address, uid in listening.items() if address.is_unspecified}


def _sockets() -> list[str]:
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    with contextlib.suppress(FileNotFoundError):  # The kernel may have no IPv6.
        lines += Path("/proc/net/tcp6").read_text().splitlines()[1:]
    return lines


def _address(text: str) -> tuple[Address, int]:
    """Parses an address of /proc/net/tcp: words of 32 bits in the machine's own order."""
    words, port = text.split(":")
    packed = b"".join(
        int(words[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(words), 8)
    )
    return _plain(ipaddress.ip_address(packed)), int(port, 16)


def _end(name: tuple[str, int]) -> tuple[Address, int]:
    return _plain(ipaddress.ip_address(name[0].partition("%")[0])), name[1]


def _plain(address: Address) -> Address:
    return getattr(address, "ipv4_mapped", None) or address


def _is_ours(port: int) -> bool:
    """Returns whether a process of this user listens on that port."""
    try:
        import psutil
    except ImportError:
        # The relay next to Ray has no psutil; without /proc the owner is unknown.
        return True
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.uids().effective != os.geteuid():
                continue
            for connection in process.net_connections(kind="tcp"):
                if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port:
                    return True
    return False


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
