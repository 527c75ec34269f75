"""Tests how often the Docker engine is asked what it is, and that a silent one holds nobody up twice."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from bootstrap import docker_engine
from bootstrap.errors import EngineNotRunning, EngineNotSupported
from bootstrap.settings import Settings
from bootstrap.steps.engine import Engine as EngineStep
from bootstrap.targets import choice
from rayside.system.shell import Shell
from tests.http_servers import answering, says


class Engine:
    """Answers as an engine does, unless it is `silent`; `asked` are the paths, without the API's version."""

    host = ""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.silent, self.ended = threading.Event(), threading.Event()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        self.asked.append("/" + request.path.rpartition("/")[2])
        if self.silent.is_set():
            self.ended.wait(60)
        else:
            body = b'{"ApiVersion": "1.44", "Architecture": "x86_64"}'
            says(request, 200, body, Content_Type="application/json", Connection="close")


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    played = Engine()
    with answering(played.answer) as port:
        played.host = f"tcp://127.0.0.1:{port}"
        monkeypatch.setenv("DOCKER_HOST", played.host)
        yield played
        played.ended.set()


def side_by_side(count: int, patience: float = 10) -> list[object]:
    """Returns what that many threads learn of the engine's architecture, or the error of each."""
    learned: list[object] = []

    def ask() -> None:
        try:
            with docker_engine.connected(patience) as client:
                learned.append(docker_engine.architecture(client))
        except EngineNotRunning as error:
            learned.append(error)

    threads = [threading.Thread(target=ask) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return learned


def test_what_does_not_change_is_asked_once_however_many_ask(engine: Engine) -> None:
    assert side_by_side(8) == ["amd64"] * 8
    assert side_by_side(1) == ["amd64"]
    assert sorted(engine.asked) == ["/info", "/version"]


def test_a_silent_engine_is_waited_for_side_by_side(engine: Engine) -> None:
    engine.silent.set()
    began = time.monotonic()
    learned = side_by_side(8, patience=1)
    assert [type(error) for error in learned] == [EngineNotRunning] * 8
    # One after the other they would take eight seconds at least.
    assert time.monotonic() - began < 6


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provides a home folder whose current Docker context is `scout`, with no engine so far."""
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".docker").mkdir()
    (tmp_path / ".docker" / "config.json").write_text('{"currentContext": "scout"}')
    return tmp_path


def context(home: Path, host: str, name: str = "scout") -> Path:
    """Writes a context as `docker context create` does; returns the folder of its certificates."""
    digest = sha256(name.encode()).hexdigest()
    folders = [home / ".docker/contexts" / kind / digest for kind in ("meta", "tls")]
    folders[0].mkdir(parents=True)
    endpoints = {"docker": {"Host": host, "SkipTLSVerify": False}}
    (folders[0] / "meta.json").write_text(json.dumps({"Name": name, "Metadata": {}, "Endpoints": endpoints}))
    return folders[1] / "docker"


def test_the_engine_is_dockers_contexts(engine: Engine, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context(home, engine.host)
    context(home, "tcp://127.0.0.1:9", "other")
    context(home, f"unix://{home}/docker.sock", "socket")
    assert side_by_side(1) == ["amd64"]
    assert docker_engine.named() == " of the Docker context scout"
    assert not docker_engine.is_of_this_machine()
    monkeypatch.setenv("DOCKER_CONTEXT", "other")
    [error] = side_by_side(1)
    assert "the Docker engine of the Docker context other does not answer" in str(error)
    assert EngineStep(Shell()).check().detail == "no Docker engine answers of the Docker context other"
    with pytest.raises(EngineNotRunning) as caught:
        EngineStep(Shell()).apply(print)
    assert caught.value.hint == "start it, or docker context use default, then ./invokew up"
    monkeypatch.setenv("DOCKER_CONTEXT", "socket")
    assert docker_engine.is_of_this_machine()
    # The first of them wins.
    monkeypatch.setenv("DOCKER_HOST", engine.host)
    assert side_by_side(1) == ["amd64"]
    assert docker_engine.named() == f" at DOCKER_HOST={engine.host}"


@pytest.mark.parametrize("kind", ["ssh", "ca", "missing", "broken"])
def test_a_context_only_for_docker_is_named_and_never_replaced_by_local(home: Path, kind: str) -> None:
    if kind in ("ssh", "ca"):
        certificates = context(home, "ssh://me@there" if kind == "ssh" else "tcp://127.0.0.1:2376")
        if kind == "ca":
            certificates.mkdir(parents=True)
            (certificates / "ca.pem").touch()
    elif kind == "broken":
        context(home, "")
        next(home.rglob("meta.json")).write_text("{}")
    settings = Settings(state_folder=home / "state")
    uses: list[Callable[[], object]] = [
        lambda: choice.choose(settings, Shell()),
        EngineStep(Shell()).check,
        lambda: docker_engine.connected(1).__enter__(),
    ]
    for use in uses:
        with pytest.raises(EngineNotSupported, match="Docker context scout") as caught:
            use()
        assert "export DOCKER_HOST=" in caught.value.hint
    assert choice.choose(replace(settings, target="local"), Shell()).instance.target == "local"


def test_no_context_is_looked_for_in_the_current_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context(home, "tcp://127.0.0.1:9")
    (home / ".docker" / "contexts").rename(home / "contexts")
    (home / ".docker" / "config.json").unlink()
    monkeypatch.setenv("DOCKER_CONTEXT", "scout")
    monkeypatch.chdir(home)
    with pytest.raises(EngineNotSupported, match="can't be read"):
        docker_engine.is_of_this_machine()


def test_a_context_without_a_name_is_none(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / ".docker" / "config.json").write_text('{"currentContext": ["scout"]}')
    assert docker_engine.named() == ""
    monkeypatch.setenv("DOCKER_HOST", "tcp://me:secret@host:2376")
    assert docker_engine.named() == " at DOCKER_HOST=tcp://host:2376"


def test_an_engine_of_a_context_that_does_not_run_is_no_reason_against_local(home: Path) -> None:
    context(home, "tcp://127.0.0.1:9")
    chosen = choice.choose(Settings(state_folder=home / "state"), Shell())
    assert chosen.instance.target == "local"
    assert "of the Docker context scout does not answer" in chosen.reason
