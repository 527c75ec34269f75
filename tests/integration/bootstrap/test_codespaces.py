"""Tests Rayside in a codespace: the addresses that people click, public ports, and too small a machine.

GitHub's front is played by a server with TLS behind a CONNECT proxy, which is how a process of a codespace
without a way out of its own would reach it: it sends a stranger to the login, or passes to the port.
"""

from __future__ import annotations

import http.client
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.integration.bootstrap.test_doctor import findings
from tests.integration.conftest import Rayside
from tests.integration.self_signed import self_signed
from tests.patience import PATIENCE

NAME, DOMAIN = "fuzzy-space-guide-97x", "ports.test"


@dataclass
class Front:
    """Plays GitHub's front end.

    Attributes:
        public: the ports that anybody reaches.
        broken: whether it answers nobody at all.
    """

    server: ThreadingHTTPServer
    certificate: Path
    workspace_port: int
    public: set[int] = field(default_factory=set)
    broken: bool = False

    @property
    def environment(self) -> dict[str, str]:
        """Returns what a process of the codespace has in its environment, besides its other settings."""
        return {
            "CODESPACES": "true",
            "CODESPACE_NAME": NAME,
            "GITHUB_CODESPACES_PORT_FORWARDING_DOMAIN": DOMAIN,
            "HTTPS_PROXY": f"http://127.0.0.1:{self.server.server_port}",
            "NO_PROXY": "",
            "REQUESTS_CA_BUNDLE": str(self.certificate),
        }

    def ask(self, host: str, path: str) -> tuple[int, dict[str, str], bytes]:
        """Returns what a stranger gets."""
        assert host.startswith(f"{NAME}-") and host.endswith(f".{DOMAIN}"), host
        port = int(host.removeprefix(f"{NAME}-").removesuffix(f".{DOMAIN}"))
        if port not in self.public:
            login = f"https://github.com/codespaces/auth/{NAME}?port={port}"
            return 302, {"Location": login}, b""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, {}, answer.read()
        except (OSError, http.client.HTTPException):
            return 502, {}, b"Bad Gateway"
        finally:
            connection.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Provides a certificate for the codespace's ports, and its key."""
    return self_signed(f"*.{DOMAIN}", tmp_path_factory.mktemp("tls"))


@pytest.fixture
def front(certificate: tuple[Path, Path], rayside: Rayside) -> Iterator[Front]:
    """Provides the front end; every port is private."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)

    class Handler(BaseHTTPRequestHandler):
        def do_CONNECT(self) -> None:
            host, port = self.path.split(":")
            assert port == "443"
            if proxy.broken:
                self.send_error(503)
                return
            self.send_response(200)
            self.end_headers()
            with context.wrap_socket(self.connection, server_side=True) as stream:
                with stream.makefile("rb") as lines:
                    _, path, _ = lines.readline().decode().split()
                    request_headers = http.client.parse_headers(lines)
                assert "Cookie" not in request_headers and "Authorization" not in request_headers
                status, headers, body = proxy.ask(host, path)
                fields = {**headers, "Content-Length": str(len(body)), "Connection": "close"}
                lines_out = [f"HTTP/1.1 {status} -", *(f"{name}: {value}" for name, value in fields.items())]
                stream.sendall("\r\n".join([*lines_out, "", ""]).encode() + body)
            self.close_connection = True

        def log_message(self, *arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        proxy = Front(server, certificate[0], rayside.settings.workspace_port)
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield proxy
        server.shutdown()
        serving.join()


def reached(port: int) -> str:
    return f"anybody on the internet reaches {port}"


def test_private_ports_are_fine(rayside: Rayside, front: Front) -> None:
    finding = findings(rayside.json("doctor", env=front.environment))["ports-private"]
    assert finding["ok"] is True
    ports = (front.workspace_port, rayside.settings.dashboard_port, rayside.settings.relay_port)
    assert finding["detail"] == ", ".join(map(str, ports))
    assert "ports-private" not in findings(rayside.json("doctor"))


def test_a_port_made_public_is_not_fine_though_nothing_listens(rayside: Rayside, front: Front) -> None:
    port = front.workspace_port
    front.public = {port}
    document = rayside.json("doctor", code=3, env=front.environment)
    finding = findings(document)["ports-private"]
    assert document["ok"] is False
    assert finding["detail"] == reached(port)
    assert f"gh codespace ports visibility {port}:private --codespace {NAME}" in str(finding["fix"])


def test_what_could_not_be_found_out_is_said(rayside: Rayside, front: Front) -> None:
    front.broken = True
    finding = findings(rayside.json("doctor", env=front.environment))["ports-private"]
    assert finding["ok"] is True
    assert str(finding["detail"]).startswith("could not be found out of ")


def test_a_codespace_too_small_is_told_what_to_choose(rayside: Rayside, front: Front) -> None:
    small = {**front.environment, "INVOKE_RAYSIDE_MIN_MEMORY_GIB": "100000"}
    done = rayside.run("up", env=small)
    assert done.returncode == 3
    assert "error[low-memory]" in done.stderr
    assert "choose a larger machine type for this codespace" in done.stderr
    # The last line of a hook that failed says what to run.
    assert done.stderr.rstrip().endswith("then: ./invokew up")
    assert not rayside.settings.state_folder.exists()


@pytest.fixture(scope="module")
def up(rayside: Rayside) -> Rayside:
    done = rayside.run("up", "--no-example")
    assert done.returncode == 0, done.stdout + done.stderr
    return rayside


def test_up_and_status_print_what_people_click(up: Rayside, front: Front) -> None:
    clicked = f"https://{NAME}-{up.settings.dashboard_port}.{DOMAIN}"
    relay = f"tcp://127.0.0.1:{up.settings.relay_port}"
    urls = up.json("status", env=front.environment)["urls"]
    assert (urls["dashboard"], urls["relay"]) == (clicked, relay)
    assert f"Dashboard   {clicked}\n" in up.run("up", "--no-example", env=front.environment).stdout
    assert f"Ready. Dashboard {clicked}, relay {relay}\n" in up.run("status", env=front.environment).stdout
    assert up.json("status")["urls"]["dashboard"] == f"http://127.0.0.1:{up.settings.dashboard_port}"


@pytest.mark.parametrize("setting", ["dashboard_port", "relay_port"])
def test_the_dashboard_or_the_relay_made_public_is_not_fine(up: Rayside, front: Front, setting: str) -> None:
    port = int(getattr(up.settings, setting))
    front.public = {port}
    finding = findings(up.json("doctor", code=3, env=front.environment))["ports-private"]
    assert finding["detail"] == reached(port)
    # The question does no harm to what it reaches.
    assert up.is_ready()
