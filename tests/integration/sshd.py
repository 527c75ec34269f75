"""Real OpenSSH server on a loopback port, and an ssh client configuration for it."""

from __future__ import annotations

import getpass
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bootstrap.machine import installed
from rayside.waiting import until
from tests.integration.conftest import free_ports

HOST = "their-head"


@dataclass(frozen=True)
class Sshd:
    """Server that accepts this user's key; with `environment`, `ssh their-head` connects to it."""

    environment: dict[str, str]
    log: Path
    pid: int


@contextmanager
def sshd() -> Iterator[Sshd]:
    """Runs a server in the context."""
    program = installed("sshd")
    assert program, "./invokew doctor --fix --tests brings it"
    (port,) = free_ports(1)
    # The server needs this folder for sessions; its package makes it at boot.
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="sshd-") as name:
        folder = Path(name)
        for key in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True)
        (folder / "sshd_config").write_text(
            f"ListenAddress 127.0.0.1:{port}\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/user.pub\n"
            "PidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n"
            "PermitRootLogin prohibit-password\n"
        )
        (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {(folder / 'host.pub').read_text()}")
        # As in a user's ~/.ssh/config; another ssh already holds the port of its LocalForward.
        (folder / "ssh_config").write_text(
            f"Host {HOST}\n  HostName 127.0.0.1\n  Port {port}\n  User {getpass.getuser()}\n"
            f"  IdentityFile {folder}/user\n  UserKnownHostsFile {folder}/known_hosts\n"
            f"  LocalForward 127.0.0.1:{port} 127.0.0.1:{port}\n"
        )
        ssh = folder / "bin" / "ssh"
        ssh.parent.mkdir()
        # ssh reads the configuration in the home folder from the user database, not from HOME.
        ssh.write_text(f'#!/bin/sh\nexec {installed("ssh")} -F {folder}/ssh_config "$@"\n')
        ssh.chmod(0o755)
        log = folder / "sshd.log"
        server = subprocess.Popen([program, "-D", "-f", folder / "sshd_config", "-E", log])
        try:
            assert until(lambda: log.exists() and "listening on" in log.read_text(), bool, 60), (
                log.read_text()
            )
            yield Sshd({"PATH": f"{ssh.parent}{os.pathsep}{os.environ['PATH']}"}, log, server.pid)
        finally:
            server.terminate()
            server.wait()
