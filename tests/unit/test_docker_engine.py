"""Tests how often the Docker engine is asked what it is, and that a silent one holds nobody up twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from bootstrap import docker_engine
from bootstrap.errors import EngineNotRunning


class Engine(ThreadingHTTPServer):
    """Answers as an engine does, unless it is `silent`; `asked` are the paths, without the API's version."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[str] = []
        self.silent = threading.Event()
        self.ended = threading.Event()

    @property
    def host(self) -> str:
        return f"tcp://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Engine

    def do_GET(self) -> None:
        self.server.asked.append("/" + self.path.rpartition("/")[2])
        if self.server.silent.is_set():
            self.server.ended.wait(60)
            return
        body = b'{"ApiVersion": "1.44", "Architecture": "x86_64"}'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    with Engine() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("DOCKER_HOST", server.host)
        yield server
        server.ended.set()
        server.shutdown()


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
