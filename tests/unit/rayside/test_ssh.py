"""Tests what is asked of OpenSSH, and which hosts it is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from bootstrap.given_settings import parse
from bootstrap.instance import configured
from rayside.reach.programs import Ssh, environment


def test_a_socket_of_ours_leads_to_the_hosts_own_port() -> None:
    words = Ssh("head").command("head", 8265, Path("/tmp/x/s"))
    assert words[words.index("-L") + 1] == "/tmp/x/s:127.0.0.1:8265"
    assert words[-2:] == ["--", "head"]
    # Nobody is there to be asked.
    assert "BatchMode=yes" in words


def test_ssh_says_that_it_leads_there_once_its_socket_is_there(tmp_path: Path) -> None:
    socket, ssh = tmp_path / "s", Ssh("head")
    assert "LocalCommand=echo forwarding" in ssh.command("head", 8265, socket)
    assert ssh.listens("forwarding", socket) is None
    socket.touch()
    assert ssh.listens("forwarding", socket) == socket
    assert ssh.listens("Last login: yesterday", socket) is None


def test_why_ssh_failed_is_its_last_word_that_is_of_this_forward() -> None:
    said = ["ann@head: Permission denied (publickey).", "bind [127.0.0.1]:22: Address already in use"]
    error = Ssh("head").failed(said)
    assert error.message == "ssh does not lead to head: ann@head: Permission denied (publickey)."
    assert error.hint.endswith("ssh -o BatchMode=yes head true")


def test_ssh_gets_the_users_environment_and_nothing_of_ours() -> None:
    inherited = {"SSH_AUTH_SOCK": "/agent", "RAY_AUTH_TOKEN": "secret", "PYTHONPATH": "/ours"}
    assert environment(inherited) == {"SSH_AUTH_SOCK": "/agent", "SSH_ASKPASS_REQUIRE": "never"}


@pytest.mark.parametrize("host", ["head", "ann@head.example", "ssh://ann@head:2222", "ann@[::1]", "10.0.0.7"])
def test_a_host_is_what_ssh_takes(host: str) -> None:
    settings = parse({"ssh": host})
    instance = configured(settings, "cluster")
    assert (instance.ssh, instance.address) == (host, "http://127.0.0.1:8265")
    assert instance.dashboard == f"http://127.0.0.1:{instance.ports.dashboard}"
    assert instance.place == f"http://127.0.0.1:8265 on {host}"
