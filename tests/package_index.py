"""Serves a package index as companies have one: by TLS, of an authority of its own, for one user alone."""

from __future__ import annotations

import base64
import contextlib
import ssl
import threading
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

from tests.integration.self_signed import of_an_authority

USER, PASSWORD = "ada", "only a/test"
_LOGIN = f"Basic {base64.b64encode(f'{USER}:{PASSWORD}'.encode()).decode()}"


@dataclass(frozen=True)
class Served:
    """An index that runs; `asked` are the paths that its user asked for."""

    host: str
    authority: Path
    asked: list[str] = field(default_factory=list)

    def url(self, password: str = PASSWORD) -> str:
        """Returns its address, with a login."""
        return f"https://{USER}:{quote(password, safe='')}@{self.host}/simple/"


@contextlib.contextmanager
def served(folder: Path, address: str, wheels: Sequence[Path]) -> Iterator[Served]:
    """Serves these wheels on an address of this machine, as PEP 503 has it."""
    folder.mkdir()
    authority, certificate = of_an_authority(address, folder)
    files = {f"/files/{wheel.name}": wheel for wheel in wheels}
    pages = {
        f"/simple/{name}/": "".join(
            f'<a href="/files/{wheel.name}">{wheel.name}</a>\n' for wheel in wheels if _name(wheel) == name
        )
        for name in map(_name, wheels)
    }
    asked: list[str] = []

    class Index(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body, status = b"", 401
            if self.headers["Authorization"] == _LOGIN:
                asked.append(self.path)
                status = 200
                if self.path in pages:
                    body = pages[self.path].encode()
                elif self.path in files:
                    body = files[self.path].read_bytes()
                else:
                    status = 404
            self.send_response(status)
            self.send_header("Content-Type", "text/html" if self.path in pages else "application/zip")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("WWW-Authenticate", 'Basic realm="packages"')
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def do_HEAD(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    with ThreadingHTTPServer((address, 0), Index) as server:
        server.daemon_threads = True
        # The handshake is the thread's: one client who says nothing must not keep others waiting.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield Served(f"{address}:{server.server_address[1]}", authority, asked)
        server.shutdown()
        thread.join()


def wheel(folder: Path, name: str, version: str) -> Path:
    """Returns a wheel of a package with one module, which says its `VERSION`."""
    file = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(f"{name}.py", f"VERSION = {version!r}\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        tag = "Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr(f"{info}/WHEEL", tag)
        archive.writestr(f"{info}/RECORD", "".join(f"{each},,\n" for each in archive.namelist()))
    return file


def _name(file: Path) -> str:
    return file.name.partition("-")[0].lower().replace("_", "-")
