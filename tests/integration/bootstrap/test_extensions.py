"""Tests that the workspace has exactly the pinned extensions, from a gallery over HTTP or from a folder."""

from __future__ import annotations

import hashlib
import json
import socket
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bootstrap.errors import BadChecksum, DownloadFailed
from bootstrap.settings import Settings
from bootstrap.sources.digests import RECORDED
from bootstrap.sources.extensions import Extensions, published, variant
from rayside.errors import InvalidSetting
from rayside.steps.step import Condition
from tests.at_once import AT_ONCE
from tests.integration.vsix import Gallery, gallery, vsix

PLATFORM = "linux-x64"
WANTED = (("acme.snake", "1.2.3"), ("acme.bug", "0.4.0"))


@pytest.fixture
def open_vsx() -> Iterator[Gallery]:
    with gallery() as served:
        yield served


@pytest.fixture
def reported() -> list[str]:
    return []


def step(
    tmp_path: Path,
    *,
    ask: bool = True,
    record: Path | None = None,
    recorded: Path = RECORDED,
    **settings: str,
) -> Extensions:
    """Returns the step as a command makes it at its start; `up` and `prepare` are those that `ask`."""
    parsed = Settings(cache_folder=tmp_path / "cache", **settings)  # type: ignore[arg-type]
    chosen = variant(parsed, ask=ask, record=record, platform=PLATFORM, pins=WANTED, recorded=recorded)
    return Extensions(parsed, chosen, record, recorded)


def full(gallery_site: Gallery, tmp_path: Path) -> None:
    """Publishes one extension for this platform and another, and one for all platforms."""
    gallery_site.publish(vsix(tmp_path / "a", *WANTED[0], PLATFORM), *WANTED[0], PLATFORM)
    gallery_site.publish(vsix(tmp_path / "b", *WANTED[0], "darwin-arm64"), *WANTED[0], "darwin-arm64")
    gallery_site.publish(vsix(tmp_path / "c", *WANTED[1]), *WANTED[1], "universal")


def test_a_gallery_gives_each_in_its_version_for_this_platform(
    open_vsx: Gallery, tmp_path: Path, reported: list[str]
) -> None:
    full(open_vsx, tmp_path)
    extensions = step(tmp_path, extension_gallery=open_vsx.url)
    assert extensions.check().condition is Condition.MISSING
    extensions.apply(reported.append)
    status = extensions.check()
    assert (status.condition, status.detail) == (
        *(Condition.READY, f"acme.snake 1.2.3, acme.bug 0.4.0 from {open_vsx.url}"),
    )
    snake, bug = extensions.variant.extensions
    assert snake.file.read_bytes() == (tmp_path / "a").read_bytes()
    assert bug.file.read_bytes() == (tmp_path / "c").read_bytes()
    digest = hashlib.sha256((tmp_path / "a").read_bytes()).hexdigest()
    assert snake.document() == {
        **{"id": "acme.snake", "version": "1.2.3"},
        **{"sha256": digest, "from": open_vsx.url},
    }


def test_what_is_there_is_not_asked_for_again(open_vsx: Gallery, tmp_path: Path, reported: list[str]) -> None:
    full(open_vsx, tmp_path)
    extensions = step(tmp_path, extension_gallery=open_vsx.url)
    extensions.apply(reported.append)
    open_vsx.requests.clear()
    again = step(tmp_path, extension_gallery=open_vsx.url)
    assert again.check().condition is Condition.READY
    assert again.variant == extensions.variant
    assert open_vsx.requests == []


def test_a_file_that_is_not_what_the_gallery_says_is_refused(
    open_vsx: Gallery, tmp_path: Path, reported: list[str]
) -> None:
    full(open_vsx, tmp_path)
    open_vsx.publish(tmp_path / "c", *WANTED[1], "universal", checksum="0" * 64)
    extensions = step(tmp_path, extension_gallery=open_vsx.url)
    with pytest.raises(BadChecksum, match=r"acme\.bug-0\.4\.0@universal\.vsix is not what was published"):
        extensions.apply(reported.append)
    assert extensions.check().condition is Condition.MISSING
    assert [extension.id for extension in step(tmp_path, ask=False).variant.extensions] == ["acme.snake"]


def test_a_recorded_digest_is_what_counts_whatever_the_gallery_says(
    open_vsx: Gallery, tmp_path: Path, reported: list[str]
) -> None:
    full(open_vsx, tmp_path)
    right = hashlib.sha256((tmp_path / "a").read_bytes()).hexdigest()
    recorded = tmp_path / "digests.json"
    recorded.write_text(json.dumps({f"acme.snake-1.2.3-{PLATFORM}": right}))
    (tmp_path / "more").mkdir()
    other = vsix(tmp_path / "more" / "a", *WANTED[0], "linux-x64")
    with zipfile.ZipFile(other, "a") as archive:
        archive.writestr("extension/evil.js", "")
    open_vsx.publish(other, *WANTED[0], PLATFORM)
    extensions = step(tmp_path, recorded=recorded, extension_gallery=open_vsx.url)
    with pytest.raises(BadChecksum, match=right):
        extensions.apply(reported.append)
    assert step(tmp_path, ask=False, recorded=recorded).variant.extensions == ()
    open_vsx.publish(tmp_path / "a", *WANTED[0], PLATFORM)
    extensions.apply(reported.append)
    taken = step(tmp_path, ask=False, recorded=recorded).variant.extensions
    assert [extension.id for extension in taken] == ["acme.snake", "acme.bug"]
    assert published(extensions.settings, PLATFORM, WANTED)[f"acme.snake-1.2.3-{PLATFORM}"]() == right
    # What was got before it was recorded, and is another, is not used.
    recorded.write_text(
        json.dumps({f"acme.snake-1.2.3-{PLATFORM}": right, f"acme.bug-0.4.0-{PLATFORM}": right})
    )
    taken = step(tmp_path, ask=False, recorded=recorded).variant.extensions
    assert [extension.id for extension in taken] == ["acme.snake"]


def test_a_first_fetch_is_recorded_and_another_file_is_refused_from_then_on(
    open_vsx: Gallery, tmp_path: Path, reported: list[str]
) -> None:
    full(open_vsx, tmp_path)
    extensions = step(tmp_path, extension_gallery=open_vsx.url)
    extensions.apply(reported.append)
    for extension in extensions.variant.extensions:
        extension.file.unlink()
    open_vsx.publish(vsix(tmp_path / "a", *WANTED[0]), *WANTED[0], PLATFORM)
    for later in (extensions, step(tmp_path, extension_gallery=open_vsx.url)):
        with pytest.raises(BadChecksum, match=r"acme\.snake"):
            later.apply(reported.append)


def test_another_extension_under_the_right_name_is_refused(
    open_vsx: Gallery, tmp_path: Path, reported: list[str]
) -> None:
    open_vsx.publish(vsix(tmp_path / "d", "acme.snake", "6.6.6"), *WANTED[0], PLATFORM)
    with pytest.raises(BadChecksum, match=r"is not acme\.snake 1\.2\.3: it is acme\.snake 6\.6\.6"):
        step(tmp_path, extension_gallery=open_vsx.url).apply(reported.append)
    assert not list((tmp_path / "cache").rglob("*.vsix"))


def test_one_that_the_gallery_lacks_is_named_and_the_others_are_had(
    open_vsx: Gallery, tmp_path: Path, reported: list[str]
) -> None:
    open_vsx.publish(vsix(tmp_path / "c", *WANTED[1]), *WANTED[1], "universal")
    extensions = step(tmp_path, extension_gallery=open_vsx.url)
    extensions.apply(reported.append)
    status = extensions.check()
    assert status.condition is Condition.READY
    assert "acme.bug 0.4.0; without acme.snake 1.2.3: " in status.detail
    assert "it has no acme.snake 1.2.3 for linux-x64" in status.detail
    assert str(extensions.variant).startswith("acme.bug 0.4.0; without acme.snake 1.2.3: ")


def test_a_gallery_that_does_not_answer_is_said_once_and_the_cluster_stays_without(
    tmp_path: Path, reported: list[str]
) -> None:
    record = tmp_path / "extensions.json"
    with gallery() as open_vsx:
        full(open_vsx, tmp_path)
        url = open_vsx.url
    extensions = step(tmp_path, record=record, extension_gallery=url)
    assert extensions.check().condition is Condition.MISSING
    extensions.apply(reported.append)
    assert reported == []
    status = extensions.check()
    assert status.condition is Condition.READY
    assert status.detail.startswith("none but ours; without acme.snake 1.2.3, acme.bug 0.4.0: the gallery")
    assert "vsix_folder" in status.detail
    assert "./invokew prepare" in status.detail
    with gallery(int(url.rpartition(":")[2])) as open_vsx:
        full(open_vsx, tmp_path)
        again = step(tmp_path, record=record, extension_gallery=url)
        assert (again.variant, again.check()) == (extensions.variant, status)
        assert open_vsx.requests == []
        # `prepare` asks for the next cluster. This one keeps what it was made with, until `down`.
        prepared = step(tmp_path, extension_gallery=url)
        prepared.apply(reported.append)
        assert prepared.variant.absent == ()
        assert step(tmp_path, record=record, extension_gallery=url).check() == status
        record.unlink()
        assert step(tmp_path, ask=False, record=record, extension_gallery=url).variant == prepared.variant


def test_a_gallery_that_says_nothing_keeps_nobody_waiting(tmp_path: Path) -> None:
    """Tests what happens behind a firewall that lets connections hang."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        extensions = step(tmp_path, extension_gallery=f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert time.monotonic() - began < 3.0 + AT_ONCE
    assert extensions.variant.extensions == ()
    assert "the gallery does not answer: http://127.0.0.1" in extensions.check().detail
    assert "not within 3 s" in extensions.check().detail


def test_status_asks_no_gallery(open_vsx: Gallery, tmp_path: Path) -> None:
    full(open_vsx, tmp_path)
    extensions = step(
        tmp_path, ask=False, record=tmp_path / "extensions.json", extension_gallery=open_vsx.url
    )
    assert extensions.check().condition is Condition.MISSING
    assert (extensions.variant.extensions, open_vsx.requests) == ((), [])


def test_a_file_that_can_not_be_had_is_an_error_and_the_next_up_has_it(
    open_vsx: Gallery, tmp_path: Path, reported: list[str]
) -> None:
    """Tests a gallery whose files are on another host, which a proxy does not let through."""
    full(open_vsx, tmp_path)
    record = tmp_path / "extensions.json"
    file = open_vsx.served.pop(f"/file/acme.snake-1.2.3@{PLATFORM}.vsix")
    extensions = step(tmp_path, record=record, extension_gallery=open_vsx.url)
    with pytest.raises(DownloadFailed, match=r"acme\.snake 1\.2\.3 was not fetched") as caught:
        extensions.apply(reported.append)
    assert "INVOKE_RAYSIDE_VSIX_FOLDER" in caught.value.hint
    assert not record.exists()
    open_vsx.served[f"/file/acme.snake-1.2.3@{PLATFORM}.vsix"] = file
    again = step(tmp_path, record=record, extension_gallery=open_vsx.url)
    again.apply(reported.append)
    assert again.variant == extensions.variant
    assert again.check().condition is Condition.READY


def test_a_page_that_is_no_gallery_is_survived(
    open_vsx: Gallery, tmp_path: Path, reported: list[str]
) -> None:
    open_vsx.served["/api/acme/snake/linux-x64/1.2.3"] = b"<html>Please log in</html>"
    open_vsx.served["/api/acme/bug/linux-x64/0.4.0"] = b'{"files": {}}'
    extensions = step(tmp_path, extension_gallery=open_vsx.url)
    extensions.apply(reported.append)
    assert "what it says is no JSON" in extensions.check().detail
    assert "names no file, or no SHA-256" in extensions.check().detail


# --- a folder ----------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    vsix_folder = tmp_path / "vsix"
    vsix_folder.mkdir()
    return vsix_folder


def test_files_are_known_by_what_is_in_them(tmp_path: Path, folder: Path) -> None:
    snake = vsix(folder / "misleading-9.9.9.vsix", *WANTED[0], PLATFORM)
    vsix(folder / "snake-for-mac.vsix", *WANTED[0], "darwin-arm64")
    vsix(folder / "acme.other-1.0.0.vsix", "acme.other", "1.0.0")
    extensions = step(tmp_path, vsix_folder=str(folder))
    (extension,) = extensions.variant.extensions
    assert (extension.id, extension.version, extension.file, extension.source) == (
        *("acme.snake", "1.2.3"),
        *(snake, "file misleading-9.9.9.vsix"),
    )
    status = extensions.check()
    assert status.condition is Condition.READY
    assert status.detail == f"acme.snake 1.2.3 from {folder}; there is no acme.bug 0.4.0"


def test_a_wrong_version_is_an_error_that_names_the_file(tmp_path: Path, folder: Path) -> None:
    file = vsix(folder / "acme.snake-1.2.3.vsix", "acme.snake", "1.2.4")
    with pytest.raises(InvalidSetting, match=f"{file} is acme.snake 1.2.4, not 1.2.3"):
        step(tmp_path, vsix_folder=str(folder)).check()


def test_one_for_another_platform_is_an_error_that_names_the_file(tmp_path: Path, folder: Path) -> None:
    file = vsix(folder / "acme.snake-1.2.3.vsix", *WANTED[0], "darwin-arm64")
    with pytest.raises(InvalidSetting, match=f"{file} is acme.snake for darwin-arm64, not for linux-x64"):
        step(tmp_path, vsix_folder=str(folder)).check()


@pytest.mark.parametrize(
    "broken", ["no zip", "cut off", "a zip without a manifest", "a manifest that is none"]
)
def test_a_broken_file_is_an_error_that_names_it(tmp_path: Path, folder: Path, broken: str) -> None:
    file = vsix(folder / "acme.snake-1.2.3.vsix", *WANTED[0])
    if broken == "no zip":
        file.write_text("<html>Not found</html>")
    elif broken == "cut off":
        file.write_bytes(file.read_bytes()[:-40])
    else:
        with zipfile.ZipFile(file, "w") as archive:
            name = "extension/package.json" if broken == "a manifest that is none" else "readme.md"
            archive.writestr(name, "[1]")
            archive.writestr("extension.vsixmanifest", "")
    with pytest.raises(InvalidSetting, match=f"{file} is no VSIX file"):
        step(tmp_path, vsix_folder=str(folder)).check()


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="there is no such folder"):
        step(tmp_path, vsix_folder=str(tmp_path / "nowhere")).check()


def test_a_folder_is_used_instead_of_the_gallery(open_vsx: Gallery, tmp_path: Path, folder: Path) -> None:
    for id, version in WANTED:
        vsix(folder / f"{id}.vsix", id, version)
    extensions = step(tmp_path, vsix_folder=str(folder), extension_gallery=open_vsx.url)
    assert [extension.id for extension in extensions.variant.extensions] == ["acme.snake", "acme.bug"]
    assert extensions.check().condition is Condition.READY
    assert open_vsx.requests == []
