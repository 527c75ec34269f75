"""Tests pip and uv at a company's index and by its proxy: with the files that pods get, and on this machine.

What these print where it fails is what Ray quotes, so it is told in words here, too. On this machine both are
told by pip's own configuration.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pip._internal.models.index import PyPI

from bootstrap import pip
from bootstrap.diagnosis.causes import why_no_runtime_env
from bootstrap.errors import BadChecksum, NoNetwork
from bootstrap.settings import Settings
from bootstrap.steps.package_index import FOLDER, PackageIndex, trusted
from rayside.system.shell import Shell
from tests.instances import instance
from tests.integration.connect_proxy import ConnectProxy, connect_proxy
from tests.package_index import PASSWORD, Served, served, wheel
from tests.unit.scripted_objects import objects

TOOLS = ("pip", "uv")
LOGIN, REFUSAL = "joe:only/a proxy", "403 Forbidden"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("index")
    with served(folder / "served", "127.0.0.1", [wheel(folder, "thing", "1.5")]) as serves:
        yield serves


@pytest.fixture(scope="module")
def proxy() -> Iterator[ConnectProxy]:
    with connect_proxy(login=LOGIN) as proxy:
        yield proxy


def files(folder: Path, url: str, authority: Path | None, by: str = "") -> Path:
    """Writes what a pod would have below `folder`, and returns that."""
    # A pod reaches no loopback address of this machine, and no setting may name one.
    settings = Settings(package_index=url, package_index_ca=str(authority or ""))
    step = PackageIndex(instance("rayside"), objects(), url, trusted(settings), by)
    for name, text in step.files.items():
        place = folder / "uv" / name
        place.parent.mkdir(exist_ok=True)
        place.write_text(text.replace(FOLDER, str(place.parent)))
    return folder


def installs(tool: str, folder: Path, package: str = "thing") -> subprocess.CompletedProcess[str]:
    """Has pip or uv install a package below `folder`, with the environment of a pod."""
    own = folder / "uv"
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "PIP_CONFIG_FILE": str(own / "pip.conf")}
    environment["XDG_CONFIG_DIRS"] = str(folder)
    if (own / "authorities.pem").exists():
        environment["SSL_CERT_FILE"] = str(own / "authorities.pem")
    # As Ray does it: without a cache.
    programs = {
        "pip": [sys.executable, "-m", "pip", "install", "--no-cache-dir", "--disable-pip-version-check"],
        "uv": [str(Path(sys.executable).with_name("uv")), "pip", "install", "--no-cache"],
    }
    return subprocess.run(
        [*programs[tool], "--target", str(folder / "installed"), package],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=170,
        check=False,
    )


@pytest.mark.parametrize("tool", TOOLS)
def test_a_package_comes_from_the_index_by_its_login_and_its_authority(
    tool: str, index: Served, tmp_path: Path
) -> None:
    index.asked.clear()
    done = installs(tool, files(tmp_path, index.url(), index.authority))
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "installed" / "thing.py").read_text() == "VERSION = '1.5'\n"
    assert "/files/thing-1.5-py3-none-any.whl" in index.asked
    assert PASSWORD not in done.stdout


UNUSABLE = "the package index, or the proxy to it, can't be used: "


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("wrong", ["authority", "name", "password", "login", "port", "host"])
def test_what_is_wrong_with_an_index_is_told(tool: str, wrong: str, index: Served, tmp_path: Path) -> None:
    authority: Path | None = index.authority
    url, host = index.url(), index.host
    if wrong == "authority":
        authority = None
    elif wrong == "password":
        url = index.url("not it")
    elif wrong == "login":
        url = f"https://{index.host}/simple/"
    else:
        host = {"name": host.replace("127.0.0.1", "localhost"), "port": "127.0.0.1:1"}.get(
            wrong, "no-such-host.invalid"
        )
        url = url.replace(index.host, host)
    done = installs(tool, files(tmp_path, url, authority))
    assert done.returncode != 0
    told, do = why_no_runtime_env(done.stdout)
    assert told.startswith(UNUSABLE), done.stdout
    assert "package_index" in do
    assert "not it" not in done.stdout


@pytest.mark.parametrize("tool", TOOLS)
def test_a_package_that_the_index_lacks_is_no_fault_of_the_index(
    tool: str, index: Served, tmp_path: Path
) -> None:
    done = installs(tool, files(tmp_path, index.url(), index.authority), "no-such-thing")
    told, hint = why_no_runtime_env(done.stdout)
    assert hint == "correct what it names in the runtime_env, and submit again"
    assert "package index" not in told


@pytest.mark.parametrize("tool", TOOLS)
def test_a_package_comes_by_the_proxy_with_its_login(
    tool: str, index: Served, proxy: ConnectProxy, tmp_path: Path
) -> None:
    index.asked.clear()
    proxy.targets.clear()
    done = installs(tool, files(tmp_path, index.url(), index.authority, proxy.url()))
    assert done.returncode == 0, done.stdout
    assert "/files/thing-1.5-py3-none-any.whl" in index.asked
    assert set(proxy.targets) == {index.host}
    assert LOGIN.partition(":")[2] not in done.stdout


@pytest.mark.parametrize("tool", TOOLS)
def test_without_an_index_pypi_is_asked_by_the_proxy(tool: str, tmp_path: Path) -> None:
    with connect_proxy(login=LOGIN) as proxy:
        proxy.refusal = REFUSAL
        done = installs(tool, files(tmp_path, "", None, proxy.url()))
    assert done.returncode != 0
    assert proxy.targets[0] == f"{PyPI.netloc}:443"


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("wrong", ["password", "login", "refusal", "port", "host"])
def test_what_is_wrong_with_a_proxy_is_told(tool: str, wrong: str, index: Served, tmp_path: Path) -> None:
    with connect_proxy(login=LOGIN) as proxy:
        proxy.refusal = REFUSAL if wrong == "refusal" else ""
        by = {
            "password": proxy.url("joe:another"),
            "login": f"http://{proxy.host}:{proxy.port}",
            "refusal": proxy.url(),
            "port": "http://127.0.0.1:1",
            "host": "http://no-such-proxy.invalid:3128",
        }[wrong]
        done = installs(tool, files(tmp_path, index.url(), index.authority, by))
    assert done.returncode != 0
    why, hint = why_no_runtime_env(done.stdout)
    assert why.startswith(UNUSABLE), done.stdout
    assert "package_proxy" in hint


# --- on this machine, by pip's configuration -----------------------------------------------


class Here:
    """Has an index's package in a lock file, a pip.conf, and a uv that notes what it is called with."""

    def __init__(self, folder: Path, index: Served, tool: str) -> None:
        self.folder, self.index, self.tool = folder, index, tool
        self.lock_file, self.called = folder / "locked.txt", folder / "called.txt"
        (file,) = index.authority.parent.parent.glob("thing-*.whl")
        self.lock(hashlib.sha256(file.read_bytes()).hexdigest())
        self.configuration = {"index-url": index.url(), "cert": str(index.authority), "retries": "1"}
        if tool == "uv":
            note = f'printf "%s\\n" "$@" > {shlex.quote(str(self.called))}\n'
            for name, before in {"uv": note, "python": ""}.items():
                real, script = Path(sys.executable).with_name(name), folder / name
                script.write_text(f'#!/bin/sh\n{before}exec {shlex.quote(str(real))} "$@"\n')
                script.chmod(0o755)

    def lock(self, digest: str, package: str = "thing") -> None:
        self.lock_file.write_text(f"{package}==1.5 --hash=sha256:{digest}\n")

    def install(self) -> str:
        """Installs it; returns the module's text."""
        config = self.folder / "pip.conf"
        config.write_text(
            "[global]\n" + "".join(f"{key} = {self.configuration[key]}\n" for key in self.configuration)
        )
        unwanted = ("PIP_", "UV_", "SSL_", "REQUESTS_", "CURL_")
        env = {key: value for key, value in os.environ.items() if not key.startswith(unwanted)}
        env |= {
            "PIP_CONFIG_FILE": str(config),
            "PIP_NO_CACHE_DIR": "1",
            "UV_DEFAULT_INDEX": "http://127.0.0.1:1/",
        }
        place = self.folder / "installed"
        options: list[str | Path] = ["--target", place]
        tools = self.folder / "python"
        pip.install(Shell(), sys.executable, self.lock_file, options, tools=tools, env=env)
        return (place / "thing.py").read_text()


@pytest.fixture(params=TOOLS)
def here(request: pytest.FixtureRequest, index: Served, tmp_path: Path) -> Here:
    index.asked.clear()
    return Here(tmp_path, index, request.param)


def test_here_a_package_comes_by_pips_index_authority_and_proxy(here: Here, proxy: ConnectProxy) -> None:
    proxy.targets.clear()
    here.configuration["proxy"] = proxy.url()
    assert here.install() == "VERSION = '1.5'\n"
    assert set(proxy.targets) == {here.index.host}
    assert here.called.exists() == (here.tool == "uv")
    # Other users of this machine see what a process is called with.
    for name in ("uv", "pip"):
        secret = {"uv": PASSWORD.partition("/")[0], "pip": LOGIN.partition(":")[2]}[name]
        assert not here.called.exists() or secret not in here.called.read_text()


@pytest.mark.parametrize("wrong", ["authority", "password", "port", "package", "proxy"])
def test_here_it_is_told_that_the_index_can_not_be_reached(here: Here, wrong: str) -> None:
    if wrong == "authority":
        del here.configuration["cert"]
    elif wrong == "package":
        here.lock("0" * 64, "no-such-thing")
    else:
        change = {
            "password": {"index-url": here.index.url("not this one")},
            "port": {"index-url": here.index.url().replace(here.index.host, "127.0.0.1:1")},
            "proxy": {"proxy": "http://joe:secretly@127.0.0.1:1"},
        }
        here.configuration |= change[wrong]
    with pytest.raises(NoNetwork) as raised:
        here.install()
    assert isinstance(raised.value, pip.NotAtIndex) == (wrong in ("package", "password"))
    assert "locked.txt" in raised.value.message
    assert "pip config" in raised.value.hint
    for secret in (PASSWORD.partition("/")[0], "not%20this%20one", "not this one", "secretly"):
        assert secret not in raised.value.message


def test_here_a_package_with_another_hash_is_refused(here: Here) -> None:
    # As many hashes as a package has that is built for each Python and platform.
    here.lock(" --hash=sha256:".join(f"{number:064}" for number in range(60)))
    with pytest.raises(BadChecksum, match="thing") as raised:
        here.install()
    assert len(raised.value.message.splitlines()) < 30
    assert not (here.folder / "installed" / "thing.py").exists()
