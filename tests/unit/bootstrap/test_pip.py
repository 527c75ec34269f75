"""Tests what pip and uv are told, by pip's configuration, and which of the two installs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from bootstrap.errors import BadChecksum, NoNetwork
from bootstrap.pip import NotAtIndex, configured, for_linux, for_pip, for_uv, install
from rayside.errors import CommandFailed, RaysideError
from rayside.system.shell import Outcome, Shell


def test_pip_is_told_what_leads_to_packages_the_environment_winning_and_nothing_else() -> None:
    listed = (
        "For variant 'user', will try loading '/home/a=b/pip.conf'\n"
        ":env:.index-url='https://environment.test/simple'\n"
        "global.cert='/etc/ssl/x.crt'\n"
        "global.extra-index-url='https://one.test/simple\\nhttps://two.test/simple'\n"
        "global.index-url='https://global.test/simple'\n"
        "global.require-virtualenv='true'\n"
        "global.trusted-host='global.test'\n"
        "install.trusted-host='install.test'\n"
        "install.user='yes'\n"
    )
    environment = {"PIP_INDEX_URL": "https://environment.test/simple", "PIP_TARGET": "/tmp", "PATH": "/bin"}
    assert configured(environment, listed) == {
        "PATH": "/bin",
        "PIP_CERT": "/etc/ssl/x.crt",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_EXTRA_INDEX_URL": "https://one.test/simple https://two.test/simple",
        "PIP_INDEX_URL": "https://environment.test/simple",
        "PIP_TRUSTED_HOST": "install.test",
    }


@pytest.mark.parametrize(("links", "is_off"), [({}, False), ({"PIP_FIND_LINKS": "/wheels"}, True)])
def test_no_index_counts_where_something_stands_in_its_place(links: dict[str, str], is_off: bool) -> None:
    assert ("PIP_NO_INDEX" in configured({"PIP_NO_INDEX": "1", **links}, "global.quiet='1'")) == is_off


@dataclass
class Pip:
    """A shell that has a pip.conf, and notes what is installed by which command."""

    listed: str = "global.index-url='https://{HOME}.test/'"
    asked: int = 0
    commands: list[list[str]] = field(default_factory=list)

    def run(
        self,
        args: Sequence[str | Path],
        *,
        env: Mapping[str, str],
        on_line: Callable[[str], None] | None = None,
    ) -> Outcome:
        assert "PIP_TARGET" not in env
        words = [str(word) for word in args]
        if on_line:
            self.commands.append(words)
            return Outcome(0, "", "")
        assert words == ["python", "-I", "-m", "pip", "config", "list", "-v"]
        self.asked += 1
        return Outcome(0, self.listed.format(**env), "")

    def install(self, folder: Path, *options: str) -> list[str]:
        """Installs beside a uv of `folder`; returns the command."""
        lock_file, tools, env = folder / "locked.txt", folder / "python", {"HOME": str(folder)}
        install(cast(Shell, self), "python", lock_file, options, tools=tools, env=env)
        return self.commands.pop()


def test_pip_is_asked_once_for_its_configuration() -> None:
    shell = Pip()
    for home, marks in (("a", "1"), ("a", "2"), ("b", "3"), ("a", "4")):
        environment = {"HOME": home, "MARK": marks, "PIP_TARGET": "/tmp"}
        told = for_pip(cast(Shell, shell), "python", environment)
        assert (told["PIP_INDEX_URL"], told["MARK"]) == (f"https://{home}.test/", marks)
    assert shell.asked == 2


def test_uv_installs_where_there_is_one_and_not_for_another_system(tmp_path: Path) -> None:
    off = "global.find-links='/wheels'\nglobal.no-index='yes'\nglobal.index-url='https://ada:secret@a.test/'"
    shell = Pip(off)
    assert shell.install(tmp_path)[:5] == ["python", "-I", "-m", "pip", "install"]
    (tmp_path / "uv").touch()
    command = shell.install(tmp_path, "--target", "/there")
    assert command[:3] == [str(tmp_path / "uv"), "pip", "install"]
    exact = {"--no-deps", "--require-hashes", "--only-binary", "--no-index", "--target"}
    assert exact <= set(command)
    assert "secret" not in " ".join(command)
    assert shell.install(tmp_path, *for_linux("3.11"))[0] == "python"


def test_uv_is_told_what_pip_is_told_and_nothing_else(tmp_path: Path) -> None:
    login = "https://ada:a%20b@one.test/simple"
    environment = {
        "NO_PROXY": "one.test",
        "PATH": "/bin",
        "PIP_EXTRA_INDEX_URL": "https://two.test/simple https://three.test/simple",
        "PIP_FIND_LINKS": "/wheels https://wheels.test/",
        "PIP_INDEX_URL": login,
        "PIP_PROXY": "http://joe:secret@proxy.test:3128",
        "PIP_TIMEOUT": "40",
        "UV_CONSTRAINT": "/theirs.txt",
        "UV_DEFAULT_INDEX": "https://theirs.test/simple",
        "http_proxy": "http://another.test",
    }
    listed = f"global.cert='{tmp_path}/x.crt'\nglobal.trusted-host='one.test'\nglobal.retries='7'\n"
    listed += "global.client-cert='/me.pem'\nglobal.keyring-provider='subprocess'\n"
    told = for_uv(configured(environment, listed))
    proxy = environment["PIP_PROXY"]
    assert told == {
        "HTTPS_PROXY": proxy,
        "HTTP_PROXY": proxy,
        "PATH": "/bin",
        "SSL_CERT_FILE": f"{tmp_path}/x.crt",
        "SSL_CLIENT_CERT": "/me.pem",
        "UV_DEFAULT_INDEX": login,
        "UV_FIND_LINKS": "/wheels,https://wheels.test/",
        "UV_HTTP_RETRIES": "7",
        "UV_HTTP_TIMEOUT": "40",
        "UV_INDEX": "https://two.test/simple https://three.test/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_INSECURE_HOST": "one.test",
        "UV_KEYRING_PROVIDER": "subprocess",
        "UV_NO_CACHE": "1",
        "UV_NO_CONFIG": "1",
        "UV_SYSTEM_CERTS": "1",
    }
    both = {"PIP_CERT": "/etc/ssl/x.crt", "REQUESTS_CA_BUNDLE": "/etc/ssl/all.crt"}
    assert for_uv(both)["SSL_CERT_FILE"] == "/etc/ssl/all.crt"
    assert for_uv({"PIP_CERT": str(tmp_path)})["SSL_CERT_DIR"] == str(tmp_path)
    assert for_uv({"PYTHONDONTWRITEBYTECODE": "1"})["UV_COMPILE_BYTECODE"] == "1"
    kept = for_uv({}, tmp_path / "kept")
    assert (kept["UV_CACHE_DIR"], "UV_NO_CACHE" in kept) == (f"{tmp_path}/kept", False)


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ("error: Failed to download `a==1`\n  cause: Hash mismatch for `a==1`", BadChecksum),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.", BadChecksum),
        ("error: Failed to fetch: http://h/\n  cause: client error (Connect)", NoNetwork),
        ("WARNING: Retrying after connection broken by 'NewConnectionError'\nERROR: No matching", NoNetwork),
        ("error: No solution found when resolving\n  cause: Because a was not found", NotAtIndex),
        ("ERROR: No matching distribution found for a==1", NotAtIndex),
        ("error: failed to write: No space left on device (os error 28)", CommandFailed),
    ],
)
def test_what_they_say_is_explained_and_short(tmp_path: Path, said: str, error: type[RaysideError]) -> None:
    # Cut off, it would be none any more.
    url = f"{'of ' * 120} https://ada:{'x' * 60}@one.test/simple"
    many = "".join(f"           sha256:{number:064}\n" for number in range(90))
    lines = f"{said.partition(chr(10))[0]}\n{many}{said}\n\x1b[31m{url}\n{'y' * 9000}"
    (tmp_path / "said").write_text(lines)
    programs = {"uv": 'cat "${0%uv}said" >&2\nexit 2', "python": f'exec {sys.executable} "$@"'}
    for name, script in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    with pytest.raises(RaysideError) as raised:
        install(Shell(), sys.executable, tmp_path / "locked.txt", tools=tmp_path / "python", env=env)
    assert type(raised.value) is error
    assert "xxxx" not in raised.value.message
    assert "\x1b" not in raised.value.message
    assert len(raised.value.message) < 2000
