"""The workspace's extensions, from a gallery over HTTP and from a folder: exactly those that are pinned."""

from __future__ import annotations

import hashlib
import json
import socket
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bootstrap.errors import BadChecksum, DownloadFailed, InvalidSetting
from bootstrap.settings import Settings
from bootstrap.sources.digests import RECORDED
from bootstrap.sources.extensions import Extensions, published, variant
from bootstrap.step import Condition
from tests.at_once import AT_ONCE
from tests.integration.vsix import Gallery, gallery, vsix

PLATFORM = "linux-x64"
WANTED = (("acme.snake", "1.2.3"), ("acme.bug", "0.4.0"))


@pytest.fixture
def open_vsx() -> Iterator[Gallery]:
    with gallery() as one:
        yield one


@pytest.fixture
def said() -> list[str]:
    return []


def step(
    tmp_path: Path,
    *,
    ask: bool = True,
    record: Path | None = None,
    recorded: Path = RECORDED,
    **settings: str,
) -> Extensions:
    """The step as a command makes it at its start; `ask` as `up` and `prepare` do."""
    made = Settings(cache_folder=tmp_path / "cache", **settings)  # type: ignore[arg-type]
    chosen = variant(made, ask=ask, record=record, platform=PLATFORM, pins=WANTED, recorded=recorded)
    return Extensions(made, chosen, record, recorded)


def full(one: Gallery, tmp_path: Path) -> None:
    """One extension for this platform and another, one for all."""
    one.publish(vsix(tmp_path / "a", *WANTED[0], PLATFORM), *WANTED[0], PLATFORM)
    one.publish(vsix(tmp_path / "b", *WANTED[0], "darwin-arm64"), *WANTED[0], "darwin-arm64")
    one.publish(vsix(tmp_path / "c", *WANTED[1]), *WANTED[1], "universal")


def test_a_gallery_gives_each_in_its_version_for_this_platform(
    open_vsx: Gallery, tmp_path: Path, said: list[str]
) -> None:
    full(open_vsx, tmp_path)
    one = step(tmp_path, extension_gallery=open_vsx.url)
    assert one.check().condition is Condition.MISSING
    one.apply(said.append)
    status = one.check()
    assert (status.condition, status.detail) == (
        *(Condition.READY, f"acme.snake 1.2.3, acme.bug 0.4.0 from {open_vsx.url}"),
    )
    snake, bug = one.variant.extensions
    assert snake.file.read_bytes() == (tmp_path / "a").read_bytes()
    assert bug.file.read_bytes() == (tmp_path / "c").read_bytes()
    digest = hashlib.sha256((tmp_path / "a").read_bytes()).hexdigest()
    assert snake.document() == {
        **{"id": "acme.snake", "version": "1.2.3"},
        **{"sha256": digest, "from": open_vsx.url},
    }


def test_what_is_there_is_not_asked_for_again(open_vsx: Gallery, tmp_path: Path, said: list[str]) -> None:
    full(open_vsx, tmp_path)
    one = step(tmp_path, extension_gallery=open_vsx.url)
    one.apply(said.append)
    open_vsx.asked.clear()
    again = step(tmp_path, extension_gallery=open_vsx.url)
    assert again.check().condition is Condition.READY
    assert again.variant == one.variant
    assert open_vsx.asked == []


def test_a_file_that_is_not_what_the_gallery_says_is_refused(
    open_vsx: Gallery, tmp_path: Path, said: list[str]
) -> None:
    full(open_vsx, tmp_path)
    open_vsx.publish(tmp_path / "c", *WANTED[1], "universal", checksum="0" * 64)
    one = step(tmp_path, extension_gallery=open_vsx.url)
    with pytest.raises(BadChecksum, match=r"acme\.bug-0\.4\.0@universal\.vsix is not what was published"):
        one.apply(said.append)
    assert one.check().condition is Condition.MISSING
    assert [one.id for one in step(tmp_path, ask=False).variant.extensions] == ["acme.snake"]


def test_a_recorded_digest_is_what_counts_whatever_the_gallery_says(
    open_vsx: Gallery, tmp_path: Path, said: list[str]
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
    one = step(tmp_path, recorded=recorded, extension_gallery=open_vsx.url)
    with pytest.raises(BadChecksum, match=right):
        one.apply(said.append)
    assert step(tmp_path, ask=False, recorded=recorded).variant.extensions == ()
    open_vsx.publish(tmp_path / "a", *WANTED[0], PLATFORM)
    one.apply(said.append)
    got = step(tmp_path, ask=False, recorded=recorded).variant.extensions
    assert [extension.id for extension in got] == ["acme.snake", "acme.bug"]
    assert published(one.settings, PLATFORM, WANTED)[f"acme.snake-1.2.3-{PLATFORM}"]() == right
    # What was got before it was recorded, and is another, is not used.
    recorded.write_text(
        json.dumps({f"acme.snake-1.2.3-{PLATFORM}": right, f"acme.bug-0.4.0-{PLATFORM}": right})
    )
    got = step(tmp_path, ask=False, recorded=recorded).variant.extensions
    assert [extension.id for extension in got] == ["acme.snake"]


def test_a_first_fetch_is_recorded_and_another_file_is_refused_from_then_on(
    open_vsx: Gallery, tmp_path: Path, said: list[str]
) -> None:
    full(open_vsx, tmp_path)
    one = step(tmp_path, extension_gallery=open_vsx.url)
    one.apply(said.append)
    for got in one.variant.extensions:
        got.file.unlink()
    open_vsx.publish(vsix(tmp_path / "a", *WANTED[0]), *WANTED[0], PLATFORM)
    for now in (one, step(tmp_path, extension_gallery=open_vsx.url)):
        with pytest.raises(BadChecksum, match=r"acme\.snake"):
            now.apply(said.append)


def test_another_extension_under_the_right_name_is_refused(
    open_vsx: Gallery, tmp_path: Path, said: list[str]
) -> None:
    open_vsx.publish(vsix(tmp_path / "d", "acme.snake", "6.6.6"), *WANTED[0], PLATFORM)
    with pytest.raises(BadChecksum, match=r"is not acme\.snake 1\.2\.3: it is acme\.snake 6\.6\.6"):
        step(tmp_path, extension_gallery=open_vsx.url).apply(said.append)
    assert not list((tmp_path / "cache").rglob("*.vsix"))


def test_one_that_the_gallery_lacks_is_named_and_the_others_are_had(
    open_vsx: Gallery, tmp_path: Path, said: list[str]
) -> None:
    open_vsx.publish(vsix(tmp_path / "c", *WANTED[1]), *WANTED[1], "universal")
    one = step(tmp_path, extension_gallery=open_vsx.url)
    one.apply(said.append)
    status = one.check()
    assert status.condition is Condition.READY
    assert "acme.bug 0.4.0; without acme.snake 1.2.3: " in status.detail
    assert "it has no acme.snake 1.2.3 for linux-x64" in status.detail
    assert str(one.variant).startswith("acme.bug 0.4.0; without acme.snake 1.2.3: ")


def test_one_that_is_only_for_another_platform_counts_as_missing(
    open_vsx: Gallery, tmp_path: Path, said: list[str]
) -> None:
    full(open_vsx, tmp_path)
    del open_vsx.served["/api/acme/snake/linux-x64/1.2.3"]
    open_vsx.served["/api/acme/snake/1.2.3"] = open_vsx.served["/api/acme/snake/darwin-arm64/1.2.3"]
    one = step(tmp_path, extension_gallery=open_vsx.url)
    one.apply(said.append)
    assert [got.id for got in one.variant.extensions] == ["acme.bug"]


def test_a_gallery_that_does_not_answer_is_said_once_and_the_cluster_stays_without(
    tmp_path: Path, said: list[str]
) -> None:
    record = tmp_path / "extensions.json"
    with gallery() as open_vsx:
        full(open_vsx, tmp_path)
        url = open_vsx.url
    one = step(tmp_path, record=record, extension_gallery=url)
    assert one.check().condition is Condition.MISSING
    one.apply(said.append)
    assert said == []
    status = one.check()
    assert status.condition is Condition.READY
    assert status.detail.startswith("none but ours; without acme.snake 1.2.3, acme.bug 0.4.0: the gallery")
    assert "vsix_folder" in status.detail
    assert "./invokew prepare" in status.detail
    with gallery(int(url.rpartition(":")[2])) as open_vsx:
        full(open_vsx, tmp_path)
        again = step(tmp_path, record=record, extension_gallery=url)
        assert (again.variant, again.check()) == (one.variant, status)
        assert open_vsx.asked == []
        # `prepare` asks for the next cluster. This one keeps what it was made with, until `down`.
        prepared = step(tmp_path, extension_gallery=url)
        prepared.apply(said.append)
        assert prepared.variant.absent == ()
        assert step(tmp_path, record=record, extension_gallery=url).check() == status
        record.unlink()
        assert step(tmp_path, ask=False, record=record, extension_gallery=url).variant == prepared.variant


def test_a_gallery_in_trouble_is_asked_once_not_for_each(tmp_path: Path, said: list[str]) -> None:
    with gallery(trouble=503) as one:
        chosen = step(tmp_path, extension_gallery=one.url).variant
    assert len(one.asked) == 1
    assert "HTTP 503" in str(chosen)


def test_a_gallery_that_says_nothing_keeps_nobody_waiting(tmp_path: Path) -> None:
    """As behind a firewall that lets connections hang."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        one = step(tmp_path, extension_gallery=f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert time.monotonic() - began < 3.0 + AT_ONCE
    assert one.variant.extensions == ()
    assert "the gallery does not answer: http://127.0.0.1" in one.check().detail
    assert "not within 3 s" in one.check().detail


def test_status_asks_no_gallery(open_vsx: Gallery, tmp_path: Path) -> None:
    full(open_vsx, tmp_path)
    one = step(tmp_path, ask=False, record=tmp_path / "extensions.json", extension_gallery=open_vsx.url)
    assert one.check().condition is Condition.MISSING
    assert (one.variant.extensions, open_vsx.asked) == ((), [])


def test_a_file_that_can_not_be_had_is_an_error_and_the_next_up_has_it(
    open_vsx: Gallery, tmp_path: Path, said: list[str]
) -> None:
    """As where the gallery's files are on another host, which a proxy does not let through."""
    full(open_vsx, tmp_path)
    record = tmp_path / "extensions.json"
    file = open_vsx.served.pop(f"/file/acme.snake-1.2.3@{PLATFORM}.vsix")
    one = step(tmp_path, record=record, extension_gallery=open_vsx.url)
    with pytest.raises(DownloadFailed, match=r"acme\.snake 1\.2\.3 was not fetched") as caught:
        one.apply(said.append)
    assert "INVOKE_RAYSIDE_VSIX_FOLDER" in caught.value.hint
    assert not record.exists()
    open_vsx.served[f"/file/acme.snake-1.2.3@{PLATFORM}.vsix"] = file
    again = step(tmp_path, record=record, extension_gallery=open_vsx.url)
    again.apply(said.append)
    assert again.variant == one.variant
    assert again.check().condition is Condition.READY


def test_what_a_cluster_was_made_with_counts_for_these_settings_and_digests_alone(
    open_vsx: Gallery, tmp_path: Path, said: list[str]
) -> None:
    full(open_vsx, tmp_path)
    record, recorded = tmp_path / "extensions.json", tmp_path / "digests.json"
    one = step(tmp_path, record=record, extension_gallery=open_vsx.url)
    one.apply(said.append)
    made_with = record.read_text()

    def now(**changed: str) -> list[str]:
        made = {"extension_gallery": open_vsx.url, **changed}
        chosen = step(tmp_path, ask=False, record=record, recorded=recorded, **made).variant
        return [f"{got.id} from {got.source}" for got in chosen.extensions]

    (tmp_path / "cache" / "extensions").rename(tmp_path / "cache" / "elsewhere")
    kept = [f"{id} from {open_vsx.url}" for id, _ in WANTED]
    assert now() == kept
    assert now(extension_gallery="http://another.test") == []
    (tmp_path / "vsix").mkdir()
    assert now(vsix_folder=str(tmp_path / "vsix")) == []
    recorded.write_text(json.dumps({f"acme.bug-0.4.0-{PLATFORM}": "1" * 64}))
    assert now() == []
    recorded.unlink()
    record.write_text(made_with.replace("0.4.0", "0.3.0"))
    assert now() == []
    for broken in (made_with[:-9], "[]", '{"extensions": [{}]}'):
        record.write_text(broken)
        assert now() == []


def test_a_page_that_is_no_gallery_is_survived(open_vsx: Gallery, tmp_path: Path, said: list[str]) -> None:
    open_vsx.served["/api/acme/snake/linux-x64/1.2.3"] = b"<html>Please log in</html>"
    open_vsx.served["/api/acme/bug/linux-x64/0.4.0"] = b'{"files": {}}'
    one = step(tmp_path, extension_gallery=open_vsx.url)
    one.apply(said.append)
    assert "what it says is no JSON" in one.check().detail
    assert "names no file, or no SHA-256" in one.check().detail


# --- a folder ----------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "vsix"
    made.mkdir()
    return made


def test_files_are_known_by_what_is_in_them(tmp_path: Path, folder: Path) -> None:
    snake = vsix(folder / "misleading-9.9.9.vsix", *WANTED[0], PLATFORM)
    vsix(folder / "snake-for-mac.vsix", *WANTED[0], "darwin-arm64")
    vsix(folder / "acme.other-1.0.0.vsix", "acme.other", "1.0.0")
    one = step(tmp_path, vsix_folder=str(folder))
    (got,) = one.variant.extensions
    assert (got.id, got.version, got.file, got.source) == (
        *("acme.snake", "1.2.3"),
        *(snake, "file misleading-9.9.9.vsix"),
    )
    status = one.check()
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
    one = step(tmp_path, vsix_folder=str(folder), extension_gallery=open_vsx.url)
    assert [got.id for got in one.variant.extensions] == ["acme.snake", "acme.bug"]
    assert one.check().condition is Condition.READY
    assert open_vsx.asked == []
