"""Private package index as in a company: TLS with a private CA, and a login."""

from __future__ import annotations

import base64
import contextlib
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import quote

from tests.http_servers import answering, says
from tests.integration.self_signed import of_an_authority

USER, PASSWORD = "ada", "only a/test"
_LOGIN = f"Basic {base64.b64encode(f'{USER}:{PASSWORD}'.encode()).decode()}"


@dataclass(frozen=True)
class Served:
    """Running index; `asked` are the paths that its user requested."""

    host: str
    authority: Path
    asked: list[str] = field(default_factory=list)

    def url(self, password: str = PASSWORD) -> str:
        """Returns its URL, with a login."""
        return f"https://{USER}:{quote(password, safe='')}@{self.host}/simple/"


@contextlib.contextmanager
def served(folder: Path, address: str, wheels: Sequence[Path]) -> Iterator[Served]:
    """Serves these wheels on an address of this machine (PEP 503)."""
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

    def answer(request: BaseHTTPRequestHandler) -> None:
        body, status = b"", 401
        if request.headers["Authorization"] == _LOGIN:
            asked.append(request.path)
            status = 200 if request.path in {*pages, *files} else 404
            if status == 200:
                is_page = request.path in pages
                body = pages[request.path].encode() if is_page else files[request.path].read_bytes()
        kind = "text/html" if request.path in pages else "application/zip"
        says(request, status, body, Content_Type=kind, WWW_Authenticate='Basic realm="packages"')

    with answering(answer, address=address, files=certificate) as port:
        yield Served(f"{address}:{port}", authority, asked)


def wheel(folder: Path, name: str, version: str) -> Path:
    """Returns a wheel of a package with one module, which contains its `VERSION`."""
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
