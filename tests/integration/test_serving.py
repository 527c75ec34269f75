"""Tests the registry on a folder: what Rayside's own client does with it, and what strangers may try."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from bootstrap.bundle.blobs import Blob
from bootstrap.delivery.loader import loader, parts
from bootstrap.errors import RegistryRefused
from bootstrap.registry.address import parse
from bootstrap.registry.exchange import Exchange
from bootstrap.registry.login import Login
from bootstrap.registry.registry import Registry
from bootstrap.settings import Settings
from bootstrap.shell import Shell
from bootstrap.sources.go import Go, image_server
from bootstrap.step import Condition, until
from tests.integration.conftest import free_ports
from tests.patience import PATIENCE

NAME = "rayside/ray"
PASSWORD = "a password"
AUTHORIZATION = f"Authorization: {Login('rayside', PASSWORD).basic}\r\n"
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
OCI = "application/vnd.oci.image.manifest.v1+json"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes what only root, as Docker is, can make")


def blob_of(content: bytes) -> Blob:
    return Blob(hashlib.sha256(content).hexdigest(), len(content))


@dataclass(frozen=True)
class Answered:
    """What a server sent to one connection: `status` is 0 where it sent nothing."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> str:
        """Returns the code of its first error."""
        return str(json.loads(self.body)["errors"][0]["code"])


@dataclass(frozen=True)
class Serving:
    """A server that runs, of the contents in `folder`."""

    process: subprocess.Popen[str]
    folder: Path
    public: int
    private: int

    def contents(self) -> set[str]:
        return {path.name for path in self.folder.iterdir()}

    def registry(self) -> Registry:
        """Returns Rayside's own client of the private side."""
        return self.client(PASSWORD)

    def client(self, password: str) -> Registry:
        return Registry(Exchange(parse(f"127.0.0.1:{self.private}")), Login("rayside", password))

    def reader(self) -> Registry:
        return Registry(Exchange(parse(f"127.0.0.1:{self.public}")))

    def send(self, content: bytes) -> Blob:
        blob = blob_of(content)
        self.registry().send(NAME, blob, lambda: iter([content]))
        return blob

    def put(self, content: bytes, digest: str, *, length: int | None = None) -> Answered:
        size = len(content) if length is None else length
        head = f"PUT /v2/{NAME}/blobs/uploads/new?digest={digest} HTTP/1.1\r\nContent-Length: {size}"
        return self.raw(head, content, port=self.private)

    def raw(self, head: str, body: bytes = b"", *, port: int = 0) -> Answered:
        """Sends exactly this and no more, and reads to the end."""
        with socket.create_connection(("127.0.0.1", port or self.public), 30) as line:
            login = AUTHORIZATION if port == self.private else ""
            line.sendall(f"{head}\r\nHost: any\r\n{login}Connection: close\r\n\r\n".encode() + body)
            line.shutdown(socket.SHUT_WR)
            return received(line)


def received(line: socket.socket) -> Answered:
    text = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := line.recv(1 << 16):
            text += piece
    head, _, body = text.partition(b"\r\n\r\n")
    first, *fields = head.decode().split("\r\n")
    headers = dict(field.split(": ", 1) for field in fields)
    return Answered(int(first.split()[1]) if first else 0, headers, body)


@pytest.fixture(scope="module")
def program() -> Path:
    cache, shell = Settings().cache_folder, Shell()
    go = Go(shell, cache)
    programs = image_server(shell, go, cache)
    for step in (go, programs):
        if step.check().condition is Condition.MISSING:
            step.apply(lambda _: None)
    return programs.folder / programs.name


def environment(folder: Path, public: int, private: int) -> dict[str, str]:
    return {
        "RAYSIDE_FOLDER": str(folder),
        "RAYSIDE_PASSWORD": PASSWORD,
        "RAYSIDE_PUBLIC": f"127.0.0.1:{public}",
        "RAYSIDE_PRIVATE": f"127.0.0.1:{private}",
    }


@contextlib.contextmanager
def serving(command: list[str], folder: Path, named: Path | None = None) -> Iterator[Serving]:
    """Runs a server of that folder, which it may know by another name."""
    public, private = free_ports()
    with subprocess.Popen(
        command, env=environment(named or folder, public, private), stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            for port in (public, private):
                assert until(lambda port=port: listens(port), bool, PATIENCE)  # type: ignore[misc]
            yield Serving(process, folder, public, private)
        finally:
            process.kill()


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5):
        return True
    return False


@pytest.fixture
def served(program: Path, tmp_path: Path) -> Iterator[Serving]:
    folder = tmp_path / "contents"
    folder.mkdir()
    with serving([str(program)], folder) as one:
        yield one


# --- what it is for ----------------------------------------------------------------------


def test_what_is_sent_to_the_private_side_is_read_from_both(served: Serving) -> None:
    registry = served.registry()
    registry.require(NAME)
    content = os.urandom(3_000_000)
    blob = blob_of(content)
    assert not registry.has(NAME, blob)
    assert registry.send(NAME, blob, lambda: iter([content[:7], content[7:]])) == blob.size
    assert registry.send("rayside/other", blob, lambda: iter([content]), known_in=NAME) == 0
    for each in (registry, served.reader()):
        assert each.has(NAME, blob)
        assert b"".join(each.read("another/name", blob)) == content
    assert served.contents() == {f"sha256-{blob.digest}"}


@pytest.mark.parametrize(
    ("document", "media_type"),
    [
        ({"mediaType": "application/vnd.oci.image.index.v1+json"}, "application/vnd.oci.image.index.v1+json"),
        ({"schemaVersion": 2}, OCI),
        ({"mediaType": "text/html"}, OCI),
        ({"mediaType": "application/x\r\nSet-Cookie: a=b"}, OCI),
        ({"mediaType": 7}, OCI),
        ([], OCI),
    ],
)
def test_a_manifest_has_the_type_that_it_says(served: Serving, document: object, media_type: str) -> None:
    text = json.dumps(document).encode()
    reference = f"sha256:{blob_of(text).digest}"
    served.registry().name(NAME, reference, text)
    assert served.reader().manifest(NAME, reference) == text
    for method, body in (("GET", text), ("HEAD", b"")):
        answer = served.raw(f"{method} /v2/{NAME}/manifests/{reference} HTTP/1.1")
        assert (answer.status, answer.body) == (200, body)
        assert answer.headers["Content-Type"] == media_type
        assert answer.headers["Content-Length"] == str(len(text))
        assert answer.headers["Docker-Content-Digest"] == reference


def test_a_content_is_read_from_any_place_on(served: Serving) -> None:
    blob = served.send(b"0123456789")
    path = f"/v2/{NAME}/blobs/sha256:{blob.digest}"
    answer = served.raw(f"GET {path} HTTP/1.1\r\nRange: bytes=4-")
    assert (answer.status, answer.body) == (206, b"456789")
    assert answer.headers["Content-Range"] == "bytes 4-9/10"
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert served.raw(f"GET {path} HTTP/1.1\r\nRange: bytes=10-").status == 416


def test_it_says_that_it_is_a_registry(served: Serving) -> None:
    for port in (served.public, served.private):
        answer = served.raw("GET /v2/ HTTP/1.1", port=port)
        assert (answer.status, answer.body) == (200, b"{}")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_at_once_when_told_to_also_with_an_upload_under_way(served: Serving, number: int) -> None:
    with upload(served):
        served.process.send_signal(number)
        assert served.process.wait(5) == 0


@as_root
def test_the_loader_joins_it_in_a_container_of_nothing_for_a_user_without_rights(
    program: Path, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    for name in ("parts", "contents", "program"):
        (root / name).mkdir(parents=True)
    (root / "parts" / "loader").write_bytes(loader(ARCHITECTURE))
    (root / "parts" / "loader").chmod(0o555)
    pieces = []
    for number, piece in enumerate(parts(program.read_bytes())):
        (root / "parts" / str(number)).write_bytes(piece)
        pieces.append(f"/parts/{number}")
    for name in ("contents", "program"):
        os.chown(root / name, 65534, 65534)
    command = [
        "/usr/sbin/chroot",
        "--userspec=65534:65534",
        str(root),
        "/parts/loader",
        "/program/serving",
        *pieces,
    ]
    with serving(command, root / "contents", Path("/contents")) as one:
        one.send(b"a content")
        assert psutil.Process(one.process.pid).cmdline() == ["/program/serving"]
        assert psutil.Process(one.process.pid).uids().effective == 65534


# --- what is refused ---------------------------------------------------------------------


def test_the_private_side_is_for_who_has_the_password(served: Serving) -> None:
    """Other users of a machine that forwards to it may reach it, too."""
    blob = blob_of(b"anything")
    with pytest.raises(RegistryRefused, match="HTTP 401"):
        served.client("another").send(NAME, blob, lambda: iter([b"anything"]))
    nobody = Registry(Exchange(parse(f"127.0.0.1:{served.private}")))
    with pytest.raises(RegistryRefused, match="HTTP 401"):
        nobody.has(NAME, blob)
    assert served.contents() == set()
    served.send(b"anything")
    assert served.contents() == {f"sha256-{blob.digest}"}


def test_the_public_side_takes_nothing(served: Serving) -> None:
    digest = f"sha256:{blob_of(b'a').digest}"
    for method, path in (
        ("POST", f"/v2/{NAME}/blobs/uploads/"),
        ("PUT", f"/v2/{NAME}/blobs/uploads/new?digest={digest}"),
        ("PATCH", f"/v2/{NAME}/blobs/uploads/new"),
        ("PUT", f"/v2/{NAME}/manifests/{digest}"),
        ("DELETE", f"/v2/{NAME}/blobs/{digest}"),
        ("OPTIONS", "*"),
        ("POST", "/v2/"),
    ):
        answer = served.raw(f"{method} {path} HTTP/1.1\r\nContent-Length: 1", b"a")
        assert answer.status == 405, (method, path)
        assert (answer.code, answer.headers["Allow"]) == ("UNSUPPORTED", "GET, HEAD")
    assert served.contents() == set()


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/v2",
        "/v2/_catalog",
        f"/v2/{NAME}/tags/list",
        f"/v2/{NAME}/blobs/sha256:../../../secret",
        f"/v2/{NAME}/blobs/sha256:..%2f..%2f..%2fsecret",
        f"/v2/{NAME}/blobs/..%2f..%2fsecret",
        f"/v2/../../secret/blobs/sha256:{'a' * 64}",
        f"/v2/{NAME}/blobs/sha256:{'A' * 64}",
        f"/v2/{NAME}/blobs/sha256:{'a' * 63}%00",
        f"/v2/{NAME}/blobs/sha256:{'a' * 65}",
        f"/v2/{NAME}/blobs/sha256:{'a' * 64}",
        f"/v2/{NAME}/blobs/sha256-{'a' * 64}",
        f"/v2/{NAME}/blobs/sha512:{'a' * 128}",
        f"/v2/{NAME}/manifests/latest",
        f"/v2/{NAME}/manifests/sha256:{'a' * 64}",
        f"//v2//{NAME}/blobs/sha256:{'a' * 64}",
        "/contents/secret",
        "/../secret",
    ],
)
def test_nothing_else_is_there(served: Serving, path: str) -> None:
    (served.folder.parent / "secret").write_text("a secret")
    (served.folder / "secret").write_text("a secret")
    for port in (served.public, served.private):
        answer = served.raw(f"GET {path} HTTP/1.1", port=port)
        assert answer.status == 404
        assert re.fullmatch("NAME_UNKNOWN|BLOB_UNKNOWN|MANIFEST_UNKNOWN", answer.code)


def test_a_folder_or_what_is_too_large_for_a_manifest_is_none(served: Serving) -> None:
    (served.folder / f"sha256-{'b' * 64}").mkdir()
    (served.folder / f"sha256-{'c' * 64}").write_bytes(b" " * (4 * 1024 * 1024 + 1))
    for digit, kind in (("b", "blobs"), ("b", "manifests"), ("c", "manifests")):
        assert served.raw(f"GET /v2/{NAME}/{kind}/sha256:{digit * 64} HTTP/1.1").status == 404


def test_what_has_another_digest_leaves_nothing(served: Serving) -> None:
    digest = blob_of(b"right").digest
    assert served.put(b"wrong", f"sha256:{digest}").code == "DIGEST_INVALID"
    # The rest of a longer one would be the next request.
    assert served.put(b"right and more", f"sha256:{digest}", length=6).code == "DIGEST_INVALID"
    assert served.put(b"righ", f"sha256:{digest}", length=5).code == "BLOB_UPLOAD_INVALID"
    for named in ("", "sha256:", "sha256:../../a", f"sha512:{digest}", f"sha256:{digest[:-1]}"):
        assert served.put(b"right", named).code == "DIGEST_INVALID"
    with pytest.raises(RegistryRefused, match="DIGEST_INVALID"):
        served.registry().send(NAME, Blob(digest, 5), lambda: iter([b"wrong"]))
    with pytest.raises(RegistryRefused, match="DIGEST_INVALID"):
        served.registry().name(NAME, "latest", b"{}")
    with pytest.raises(RegistryRefused, match="DIGEST_INVALID"):
        served.registry().name(NAME, f"sha256:{digest}", b"{}")
    assert until(served.contents, lambda left: not left, PATIENCE) == set()


def test_a_manifest_above_4_mib_is_refused(served: Serving) -> None:
    for size, status in ((4 * 1024 * 1024, 201), (4 * 1024 * 1024 + 1, 413)):
        text = b" " * size
        head = f"PUT /v2/{NAME}/manifests/sha256:{blob_of(text).digest} HTTP/1.1\r\nContent-Length: {size}"
        assert served.raw(head, text, port=served.private).status == status
    assert len(served.contents()) == 1


@contextlib.contextmanager
def upload(served: Serving) -> Iterator[socket.socket]:
    """Begins to send a content, and waits until some of it is there."""
    with socket.create_connection(("127.0.0.1", served.private), 30) as line:
        head = f"PUT /v2/{NAME}/blobs/uploads/new?digest=sha256:{'d' * 64} HTTP/1.1"
        head = f"{head}\r\nHost: any\r\n{AUTHORIZATION}Content-Length: 1000000"
        line.sendall(f"{head}\r\n\r\n".encode() + b"a" * 1000)
        assert until(served.contents, bool, PATIENCE)
        yield line


def test_an_upload_that_breaks_off_leaves_nothing(served: Serving) -> None:
    with upload(served):
        pass
    assert until(served.contents, lambda left: not left, PATIENCE) == set()


def test_what_a_killed_one_has_left_goes_with_the_next(served: Serving, program: Path) -> None:
    blob = served.send(b"a content")
    with upload(served):
        assert until(served.contents, lambda there: len(there) == 2, PATIENCE)
        served.process.kill()
        served.process.wait()
    assert len(served.contents()) == 2
    with serving([str(program)], served.folder) as next_one:
        assert next_one.contents() == {f"sha256-{blob.digest}"}
        assert next_one.reader().has(NAME, blob)


@as_root
def test_a_full_disk_is_said_and_leaves_nothing(program: Path, tmp_path: Path) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", folder], check=True)
    try:
        with serving([str(program)], folder) as full:
            with pytest.raises(RegistryRefused, match=r"HTTP 507, UNKNOWN no space left") as refused:
                full.send(os.urandom(20_000_000))
            assert "it is full" in refused.value.hint
            # It lets one finish who hears nothing before all is sent.
            content = os.urandom(50_000_000)
            assert full.put(content, f"sha256:{blob_of(content).digest}").status == 507
            assert full.contents() == set()
            full.send(b"a small one")
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


# --- what strangers cost -----------------------------------------------------------------


def test_a_huge_head_is_refused(served: Serving) -> None:
    assert served.raw(f"GET /v2/ HTTP/1.1\r\nX: {'a' * 100_000}").status in (0, 431)
    assert served.raw(f"GET /v2/{'a' * 100_000} HTTP/1.1").status in (0, 431)
    assert served.raw("GET /v2/ HTTP/1.1").status == 200


def test_many_who_say_nothing_are_ended_and_others_are_answered_then(served: Serving) -> None:
    blob = served.send(b"a content")
    process, begun = psutil.Process(served.process.pid), time.monotonic()
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(socket.socket()) for _ in range(300)]
        for number, line in enumerate(silent):
            line.settimeout(60)
            line.connect(("127.0.0.1", served.public))
            if number % 2:
                line.sendall(b"GET /v2/ HTTP/1.1\r\nHost: ")
        assert until(lambda: len(process.net_connections()), lambda count: count >= 256, PATIENCE) <= 256 + 2
        # The private side has its own.
        assert served.registry().has(NAME, blob)
        assert time.monotonic() - begun < 8
        assert served.reader().has(NAME, blob)
        assert 5 < time.monotonic() - begun < 30
        # Go says 408 to some of them.
        assert received(silent[0]).status == 0
        assert received(silent[1]).status in (0, 400, 408)
    assert process.memory_info().rss < 64 * 1024 * 1024


def test_a_body_that_never_comes_is_not_waited_for_while_one_who_reads_slowly_gets_all(
    served: Serving,
) -> None:
    content = os.urandom(30_000_000)
    blob, begun = served.send(content), time.monotonic()
    with socket.create_connection(("127.0.0.1", served.public), 60) as slow:
        head = f"GET /v2/{NAME}/blobs/sha256:{blob.digest} HTTP/1.1\r\nHost: any\r\nConnection: close"
        slow.sendall(f"{head}\r\n\r\n".encode())
        with socket.create_connection(("127.0.0.1", served.public), 60) as line:
            line.sendall(b"GET /v2/ HTTP/1.1\r\nHost: any\r\nContent-Length: 1000\r\n\r\n")
            assert received(line).status == 200
        assert 5 < time.monotonic() - begun < 30
        assert received(slow).body == content


def test_many_manifests_at_once_take_little_memory(served: Serving) -> None:
    text = json.dumps({"mediaType": OCI, "annotations": {"a": "b" * 4_000_000}}).encode()
    reference = f"sha256:{blob_of(text).digest}"
    served.registry().name(NAME, reference, text)
    served_at, head = ("127.0.0.1", served.public), f"GET /v2/{NAME}/manifests/{reference} HTTP/1.1"
    with contextlib.ExitStack() as stack:
        lines = [stack.enter_context(socket.create_connection(served_at, 60)) for _ in range(100)]
        for line in lines:
            line.sendall(f"{head}\r\nHost: any\r\nConnection: close\r\n\r\n".encode())
        for line in lines:
            assert received(line).body == text
    status = Path(f"/proc/{served.process.pid}/status").read_text()
    (peak,) = re.findall(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    assert int(peak) < 100 * 1024


# --- what keeps it from starting ---------------------------------------------------------


def test_it_says_why_it_can_not_start(program: Path, served: Serving, tmp_path: Path) -> None:
    public, private = free_ports()
    for folder, ports, words in (
        (tmp_path / "nothing", (public, private), "no such file or directory"),
        (tmp_path, (served.public, private), "address already in use"),
        (tmp_path, (public, served.private), "address already in use"),
    ):
        variables = environment(folder, *ports)
        done = subprocess.run(
            [program], env=variables, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert done.returncode == 1
        assert done.stderr.startswith("serving: ")
        assert words in done.stderr
