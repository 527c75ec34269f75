"""Tests that the Debian below each image of source `packages` has Debian's signature, or is not made."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from bootstrap.errors import BuildFailed
from bootstrap.settings import DEBIAN_SUITE
from bootstrap.sources.base_image import KEYRING, BaseImage
from rayside.errors import MissingProgram
from rayside.steps.step import Condition
from rayside.system.shell import Shell


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[str]:
    """Serves a mirror without Debian's keys: all that debootstrap asks for except a right signature."""
    suite = tmp_path / "mirror" / "dists" / DEBIAN_SUITE
    packages = suite / "main" / "binary-amd64" / "Packages"
    packages.parent.mkdir(parents=True)
    packages.write_text("Package: base-files\nVersion: 1\nFilename: pool/evil.deb\n")
    digest = hashlib.sha256(packages.read_bytes()).hexdigest()
    (suite / "Release").write_text(
        f"Origin: Debian\nLabel: Debian\nSuite: stable\nCodename: {DEBIAN_SUITE}\n"
        "Architectures: amd64 arm64\nComponents: main\nSHA256:\n"
        f" {digest} {packages.stat().st_size} main/binary-amd64/Packages\n"
    )
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path / "mirror"))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("signature", "why"),
    [(None, "Failed getting release signature file"), ("of nobody\n", "Release signature")],
)
def test_a_mirror_without_debians_signature_is_refused(
    mirror: str, signature: str | None, why: str, tmp_path: Path
) -> None:
    if signature:
        (tmp_path / "mirror" / "dists" / DEBIAN_SUITE / "Release.gpg").write_text(signature)
    image = BaseImage(Shell(), tmp_path / "cache", mirror)
    (tmp_path / "cache").mkdir()
    with pytest.raises(BuildFailed, match=why):
        image.apply(lambda _: None)
    assert image.check().condition is Condition.MISSING


def test_without_debians_keys_nothing_is_made(mirror: str, tmp_path: Path) -> None:
    absent = tmp_path / "no-keys.gpg"
    (tmp_path / "cache").mkdir()
    image = BaseImage(Shell(), tmp_path / "cache", mirror, keyring=absent)
    with pytest.raises(MissingProgram, match="no-keys") as caught:
        image.apply(lambda _: None)
    assert "doctor --fix" in caught.value.hint
    assert KEYRING.exists()
