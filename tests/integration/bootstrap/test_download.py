"""Tests downloads from a real server that breaks off, lies, moves or hangs."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from bootstrap.download import Download
from bootstrap.errors import BadChecksum, BuildFailed, DownloadFailed
from bootstrap.settings import KUBERAY_VERSION, ROOT, Settings
from bootstrap.sources import digests, go
from bootstrap.sources.reachable import unreachable
from bootstrap.sources.releases import Releases, published
from bootstrap.sources.upstream import upstream
from rayside.errors import RaysideError
from rayside.steps.step import Appliable, Condition
from rayside.system.shell import Shell
from tests.at_once import AT_ONCE
from tests.http_servers import answering, says
from tests.integration.vsix import without_asking

CONTENT = random.Random(1).randbytes(4_000_000)
# What a client reads at once: of what comes before a cut, whole pieces are kept.
PIECE = 2**16
HALF = 30 * PIECE


@dataclass
class Site:
    """Holds what the server has, how it answers, and which requests it got."""

    files: dict[str, bytes]
    # Bytes of the body after which each of the next answers breaks off.
    cuts: list[int] = field(default_factory=list)
    # HTTP statuses of the next answers, which have no content then.
    statuses: list[int] = field(default_factory=list)
    # Where set, answers stop in the middle until it is set.
    hold: threading.Event | None = None
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    url: str = ""

    def gets(self, path: str) -> list[dict[str, str]]:
        """Returns the headers of each request for `path`."""
        return [headers for requested, headers in self.requests if requested == path]


def answer(site: Site, request: BaseHTTPRequestHandler) -> None:
    request.close_connection = True  # for an answer that breaks off
    if request.command == "HEAD":
        says(request, 401)
        return
    site.requests.append((request.path, dict(request.headers)))
    content = site.files.get(request.path)
    if site.statuses or content is None:
        request.send_error(site.statuses.pop(0) if site.statuses else 404)
        return
    request.send_response(200)
    request.send_header("Content-Length", str(len(content)))
    request.end_headers()
    body = content
    if site.cuts:
        body = body[: site.cuts.pop(0)]
    with contextlib.suppress(OSError):  # the client was killed
        request.wfile.write(body[:HALF])
        if site.hold:
            site.hold.wait(60)
        request.wfile.write(body[HALF:])


@pytest.fixture
def site() -> Iterator[Site]:
    served = Site({"/program": CONTENT})
    with answering(partial(answer, served)) as port:
        served.url = f"http://127.0.0.1:{port}"
        yield served
        if served.hold:
            served.hold.set()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "downloads" / "program"


def silent(_: str) -> None:
    pass


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def fetch(site: Site, file: Path, content: bytes = CONTENT) -> list[str]:
    reported: list[str] = []
    Download(f"{site.url}/program", "kind_releases").fetch(file, sha256(content), reported.append)
    return reported


def left(file: Path) -> set[str]:
    """Returns what is in the folder besides the lock."""
    return {entry.name for entry in file.parent.iterdir()} - {f".{file.name}.lock"}


def test_a_file_is_downloaded_once_with_its_progress(site: Site, file: Path) -> None:
    progress = fetch(site, file)
    assert file.read_bytes() == CONTENT
    assert left(file) == {"program"}
    assert progress == ["0 of 4 MB", "1 of 4 MB", "2 of 4 MB", "3 of 4 MB", "4 of 4 MB"]
    assert fetch(site, file) == []
    assert len(site.requests) == 1


def test_a_transfer_that_breaks_off_is_begun_again(site: Site, file: Path) -> None:
    site.cuts = [20 * PIECE, 0]
    fetch(site, file)
    assert file.read_bytes() == CONTENT
    assert left(file) == {"program"}


def test_a_server_that_gives_up_is_not_asked_for_ever(site: Site, file: Path) -> None:
    site.cuts = [HALF, HALF, 0]
    with pytest.raises(DownloadFailed, match=re.escape(f"{site.url}/program can't be downloaded")) as caught:
        fetch(site, file)
    assert "INVOKE_RAYSIDE_KIND_RELEASES" in caught.value.hint
    assert len(site.requests) == 3
    assert left(file) == set()


def test_a_wrong_checksum_is_refused_and_nothing_is_kept(site: Site, file: Path) -> None:
    with pytest.raises(BadChecksum) as caught:
        fetch(site, file, b"something else")
    assert sha256(CONTENT) in caught.value.message
    assert sha256(b"something else") in caught.value.message
    assert left(file) == set()


def test_a_file_that_is_not_there_is_told_with_its_address_and_status(site: Site, file: Path) -> None:
    site.files.clear()
    with pytest.raises(DownloadFailed, match=r"/program can't be downloaded: HTTP 404 Not Found"):
        fetch(site, file)
    assert left(file) == set()


def test_a_server_that_is_not_there_is_told_with_the_reason(file: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        nobody = Download(f"http://127.0.0.1:{listener.getsockname()[1]}/program", "kind_releases")
        with pytest.raises(DownloadFailed, match="Connection refused"):
            nobody.fetch(file, sha256(CONTENT), silent)
        with pytest.raises(DownloadFailed, match="Connection refused"):
            nobody.text()


def test_the_environment_s_proxy_is_used(site: Site, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HTTP_PROXY", site.url)
    site.files = {"http://mirror.test/program": CONTENT}
    Download("http://mirror.test/program", "kind_releases").fetch(file, sha256(CONTENT), silent)
    assert file.read_bytes() == CONTENT


# --- processes ---------------------------------------------------------------------------

FETCH = (
    "import sys; from pathlib import Path; from bootstrap.download import Download;"
    "Download(sys.argv[1], 'kind_releases').fetch("
    "Path(sys.argv[2]), sys.argv[3], lambda text: print(text, flush=True))"
)


def start(site: Site, file: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", FETCH, f"{site.url}/program", str(file), sha256(CONTENT)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_download_that_was_killed_is_begun_again(site: Site, file: Path) -> None:
    site.hold = threading.Event()
    with start(site, file) as killed:
        assert killed.stdout
        for line in killed.stdout:
            if line.startswith("1 of"):
                break
        killed.send_signal(signal.SIGKILL)
    assert not file.exists()
    site.hold.set()
    site.hold = None
    fetch(site, file)
    assert file.read_bytes() == CONTENT


def test_of_two_at_once_the_second_finds_the_work_done(site: Site, file: Path) -> None:
    site.hold = threading.Event()
    first = start(site, file)
    assert first.stdout
    assert first.stdout.readline() == "0 of 4 MB\n"
    second = start(site, file)
    assert second.stdout
    assert second.stdout.readline() == "another command is downloading it: waiting\n"
    site.hold.set()
    for process in (first, second):
        process.communicate(timeout=60)
        assert process.returncode == 0
    assert file.read_bytes() == CONTENT
    assert len(site.requests) == 1


# --- the steps of source `upstream` -------------------------------------------------------

PLUGIN = "/kuberay/v1.6.2/kubectl-ray_v1.6.2_linux_amd64.tar.gz"
KUBERAY = "github.com/ray-project/kuberay/ray-operator"
MODULE = f"/go/{KUBERAY}/@v/v{KUBERAY_VERSION}"
PROGRAM = b"#!/bin/sh\necho I am a program\n"


def tarball() -> bytes:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w:gz") as archive:
        for name, content in (("LICENSE", b"free"), ("kubectl-ray", PROGRAM)):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return whole.getvalue()


@pytest.fixture
def source(site: Site, tmp_path: Path) -> Releases:
    """Returns the source for linux on amd64, whose release pages are the server's."""
    plugin = tarball()
    site.files = {
        "/kind/v0.33.0/kind-linux-amd64": PROGRAM,
        "/kind/v0.33.0/kind-linux-amd64.sha256sum": f"{sha256(PROGRAM)}  kind-linux-amd64\n".encode(),
        "/k8s/v1.34.4/bin/linux/amd64/kubectl": PROGRAM,
        "/k8s/v1.34.4/bin/linux/amd64/kubectl.sha256": sha256(PROGRAM).encode(),
        PLUGIN: plugin,
        "/kuberay/v1.6.2/kubectl-ray_1.6.2_checksums.txt": (
            f"{sha256(b'')}  kubectl-ray_v1.6.2_darwin_amd64.tar.gz\n"
            f"{sha256(plugin)}  kubectl-ray_v1.6.2_linux_amd64.tar.gz\n"
        ).encode(),
    }
    settings = Settings(
        cache_folder=tmp_path / "cache",
        kind_releases=f"{site.url}/kind",
        kubernetes_releases=f"{site.url}/k8s",
        kuberay_releases=f"{site.url}/kuberay",
    )
    return Releases(settings, system="linux", architecture="amd64")


def test_every_program_is_verified_and_runs(source: Releases) -> None:
    for step in (source.kind, source.kubectl, source.kubectl_ray):
        program = step.file
        assert step.check().condition is Condition.MISSING
        step.apply(silent)
        assert step.check().condition is Condition.READY
        assert program.parent.parent == source.settings.cache_folder
        done = subprocess.run([program], capture_output=True, text=True, check=True)
        assert done.stdout == "I am a program\n"
        step.apply(silent)
    downloads = source.settings.cache_folder / "downloads"
    assert [entry.name for entry in downloads.iterdir() if entry.suffix != ".lock"] == []


def test_a_program_that_is_not_the_published_one_is_never_there(site: Site, source: Releases) -> None:
    site.files["/kind/v0.33.0/kind-linux-amd64"] += b"# and more\n"
    with pytest.raises(BadChecksum):
        source.kind.apply(silent)
    assert source.kind.check().condition is Condition.MISSING
    assert not source.kind.file.exists()


def test_a_recorded_digest_is_what_counts_whatever_the_release_says_of_itself(
    site: Site, source: Releases, tmp_path: Path
) -> None:
    """A release page that was taken over has another program, and the checksum of that program."""
    recorded = replace(source, recorded=tmp_path / "digests.json")
    recorded.recorded.write_text(json.dumps({"kind-0.33.0-linux-amd64": sha256(PROGRAM)}))
    other = PROGRAM + b"# and more\n"
    site.files["/kind/v0.33.0/kind-linux-amd64"] = other
    site.files["/kind/v0.33.0/kind-linux-amd64.sha256sum"] = sha256(other).encode()
    with pytest.raises(BadChecksum, match=sha256(PROGRAM)):
        recorded.kind.apply(silent)
    assert not recorded.kind.file.exists()
    site.files["/kind/v0.33.0/kind-linux-amd64"] = PROGRAM
    recorded.kind.apply(silent)
    assert recorded.kind.file.read_bytes() == PROGRAM
    assert site.gets("/kind/v0.33.0/kind-linux-amd64.sha256sum") == []


def test_where_nothing_is_recorded_the_first_fetch_is_and_another_is_refused(
    site: Site, source: Releases
) -> None:
    reported: list[str] = []
    source.kind.apply(reported.append)
    assert any("held to the digest of this first fetch" in line for line in reported)
    shutil.rmtree(source.kind.file.parent)
    other = PROGRAM + b"# and more\n"
    site.files["/kind/v0.33.0/kind-linux-amd64"] = other
    site.files["/kind/v0.33.0/kind-linux-amd64.sha256sum"] = sha256(other).encode()
    with pytest.raises(BadChecksum, match=sha256(PROGRAM)):
        source.kind.apply(silent)
    assert not source.kind.file.exists()


def test_lock_records_what_is_published_keeps_what_is_not_there_and_refuses_another(
    site: Site, source: Releases, tmp_path: Path
) -> None:
    file, reported = tmp_path / "digests.json", list[str]()
    programs = {name: ask for name, ask in published(source.settings).items() if name.startswith("k")}
    file.write_text(json.dumps({"kind-0.33.0-darwin-arm64": "a" * 64, "kind-0.1.0-linux-amd64": "b" * 64}))
    digests.record(file, programs, reported.append)
    after = json.loads(file.read_text())
    assert after == {
        "kind-0.33.0-darwin-arm64": "a" * 64,
        "kind-0.33.0-linux-amd64": sha256(PROGRAM),
        "kubectl-1.34.4-linux-amd64": sha256(PROGRAM),
        "kubectl-ray-1.6.2-darwin-amd64": sha256(b""),
        "kubectl-ray-1.6.2-linux-amd64": sha256(site.files[PLUGIN]),
    }
    assert any(line.startswith("kubectl-1.34.4-darwin-arm64 could not be recorded") for line in reported)
    site.files["/kind/v0.33.0/kind-linux-amd64.sha256sum"] = sha256(b"another").encode()
    with pytest.raises(BadChecksum, match=r"kind-0\.33\.0-linux-amd64 is recorded as"):
        digests.record(file, programs, silent)
    assert json.loads(file.read_text()) == after


def test_a_release_without_a_checksum_for_it_is_refused(site: Site, source: Releases) -> None:
    sums = "/kuberay/v1.6.2/kubectl-ray_1.6.2_checksums.txt"
    site.files[sums] = b"<html>please log in</html>"
    with pytest.raises(DownloadFailed, match="it has no SHA-256 of kubectl-ray_v1"):
        source.kubectl_ray.apply(silent)
    del site.files[sums]
    with pytest.raises(DownloadFailed, match="HTTP 404"):
        source.kubectl_ray.apply(silent)
    assert not source.kubectl_ray.file.exists()


@dataclass
class Fetched:
    """Holds the step that has Go fetch KubeRay's manifests, and the folder where they come to be.

    Until `elsewhere` is undone, they come from the site, which has another module than go.sum names.
    """

    step: Appliable
    folder: Path
    elsewhere: pytest.MonkeyPatch


@pytest.fixture
def kuberay(site: Site, source: Releases, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fetched]:
    whole_source = upstream(source, without_asking(source.settings), Shell())
    steps = {step.name: step for step in whole_source.steps}
    if steps["go"].check().condition is Condition.MISSING:
        steps["go"].apply(silent)
    prefix = f"{KUBERAY}@v{KUBERAY_VERSION}"
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as module:
        module.writestr(f"{prefix}/go.mod", f"module {KUBERAY}\n")
        module.writestr(f"{prefix}/config/default/kustomization.yaml", "resources: [../evil]\n")
    site.files |= {
        f"{MODULE}.info": f'{{"Version": "v{KUBERAY_VERSION}"}}'.encode(),
        f"{MODULE}.mod": f"module {KUBERAY}\n".encode(),
        f"{MODULE}.zip": whole.getvalue(),
    }
    monkeypatch.setattr(go, "_PAUSES", (0.01, 0.01))
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("GOPROXY", f"{site.url}/go")
        yield Fetched(steps["kuberay-manifests"], whole_source.resolve("kuberay").path, elsewhere)


def test_the_manifests_come_from_the_module_that_go_sum_names_alone(site: Site, kuberay: Fetched) -> None:
    """Go fetches them, from where its own configuration says: once another module, once the right one."""
    manifests, folder = kuberay.step, kuberay.folder
    with pytest.raises(BadChecksum, match=r"not what go\.sum names"):
        manifests.apply(silent)
    assert len(site.gets(f"{MODULE}.mod")) == 1
    assert not folder.exists()
    kuberay.elsewhere.undo()
    manifests.apply(silent)
    assert manifests.check().condition is Condition.READY
    assert f"v{KUBERAY_VERSION}" in (folder / "kustomization.yaml").read_text()
    assert not (folder.parent.parent / "main.go").exists()


@pytest.mark.parametrize(
    ("statuses", "cuts", "error", "says", "times"),
    [
        # Go asks for two files at once. They come in the end, and are not the right ones.
        ([503, 503, 429, 429], [], BadChecksum, "not what go", 3),
        ([], [5, 5], BadChecksum, "not what go", 2),
        ([502] * 9, [], BuildFailed, "502 Bad Gateway", 3),
        ([403] * 9, [], BuildFailed, "403 Forbidden", 1),
    ],
)
def test_a_module_is_asked_for_again_where_its_server_fails_and_not_where_it_refuses(
    *,
    site: Site,
    kuberay: Fetched,
    statuses: list[int],
    cuts: list[int],
    error: type[RaysideError],
    says: str,
    times: int,
) -> None:
    site.statuses, site.cuts = list(statuses), list(cuts)
    reported: list[str] = []
    with pytest.raises(error, match=says):
        kuberay.step.apply(reported.append)
    assert len([text for text in reported if "tried again" in text]) == times - 1


# --- whether it answers ------------------------------------------------------------------


def settings(registry: str, releases: str) -> Settings:
    return Settings(ray_image=f"{registry}/ray", kind_releases=f"{releases}/kind/releases")


def test_of_registry_and_release_page_the_one_that_does_not_answer_is_named(site: Site) -> None:
    assert unreachable(settings(site.url.removeprefix("http://"), site.url)) is None
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        host = site.url.removeprefix("http://")
        problem = unreachable(settings(host, f"http://127.0.0.1:{port}"))
        assert problem
        assert problem.startswith(f"http://127.0.0.1:{port}/ does not answer: ")
        problem = unreachable(settings(f"127.0.0.1:{port}", site.url))
        assert problem
        assert problem.startswith(f"http://127.0.0.1:{port}/v2/ does not answer: ")


def test_one_that_never_ends_its_answer_is_not_waited_for(site: Site) -> None:
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as slow:

        def trickle() -> None:
            connection, _ = slow.accept()
            with connection:
                for _ in range(60):
                    if over.wait(0.2):
                        return
                    connection.sendall(b"H")

        thread = threading.Thread(target=trickle)
        thread.start()
        began = time.monotonic()
        problem = unreachable(
            settings(site.url.removeprefix("http://"), f"http://127.0.0.1:{slow.getsockname()[1]}")
        )
        took = time.monotonic() - began
        over.set()
        thread.join()
    assert took < 3.0 + AT_ONCE
    assert problem
    assert problem.endswith("does not answer: not within 3 s")
