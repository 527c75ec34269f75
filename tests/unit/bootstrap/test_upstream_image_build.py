"""Tests the tag of an image of ours: it changes with each input, and with nothing else."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from bootstrap.download import sha256
from bootstrap.sources.image_build import ImageBuild, certificates


@pytest.fixture
def context(tmp_path: Path) -> Path:
    folder = tmp_path / "context"
    (folder / "files").mkdir(parents=True)
    (folder / "Dockerfile").write_text("FROM $BASE\n")
    (folder / "files" / "start").write_text("#!/bin/sh\n")
    (folder / "link").symlink_to("files/start")
    return folder


def build(context: Path, **changed: object) -> ImageBuild:
    arguments: dict[str, object] = {
        "name": "image",
        "title": "an image",
        "repository": "rayside/test",
        "context": context,
        "cache_folder": context.parent / "cache",
        "arguments": {"BASE": "base:1"},
        **changed,
    }
    return ImageBuild(**arguments)  # type: ignore[arg-type]


def test_the_tag_is_twelve_digits_of_the_inputs_and_computed_once(context: Path) -> None:
    hashed: list[Path] = []

    def remember(file: Path) -> str:
        hashed.append(file)
        return sha256(file)

    image_build = build(context, hashed=remember)
    before = (image_build.reference, image_build.inputs)
    assert before[0] == f"rayside/test:{before[1][:12]}"
    assert len(before[1]) == 64
    (context / "files" / "start").write_text("#!/bin/bash\n")
    assert (image_build.reference, image_build.inputs) == before
    assert sorted(hashed) == [context / "Dockerfile", context / "files" / "start"]


def test_every_input_changes_the_tag(context: Path, tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("1")
    extra = {"lock": tmp_path / "lock"}
    tags = [build(context, extra=extra).reference]

    def another(**changed: object) -> None:
        tags.append(build(context, **{"extra": extra, **changed}).reference)
        assert len(set(tags)) == len(tags), changed

    another(arguments={"BASE": "base:2"})
    another(arguments={"BASE": "base:1", "MORE": ""})
    (context / "files" / "start").write_text("#!/bin/bash\n")
    another()
    (context / "files" / "start").chmod(0o755)
    another()
    (context / "link").unlink()
    (context / "link").symlink_to("files")
    another()
    (context / "files" / "new").touch()
    another()
    (context / "Dockerfile").write_text("FROM $BASE\nUSER 1000\n")
    another()
    (tmp_path / "lock").write_text("2")
    another()
    another(extra={"lock.txt": tmp_path / "lock"})


def test_neither_place_nor_time_does(context: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = build(context).reference
    (context / "files" / "start").chmod(0o600)
    (context / "files" / "start").touch()
    (context / "files" / "__pycache__").mkdir()
    (context / "files" / "__pycache__" / "a.pyc").touch()
    (context / "other.Dockerfile").write_text("FROM scratch\n")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.test")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "company.pem"))
    moved = context.rename(tmp_path / "elsewhere")
    assert build(moved).reference == before


def test_the_tag_of_what_is_not_made_yet_is_known(context: Path, tmp_path: Path) -> None:
    def with_program(cache: Path, folder: str) -> str:
        return build(context, cache_folder=cache, extra={"program": cache / folder / "program"}).reference

    tag = with_program(tmp_path / "cache", "program-1")
    assert tag == with_program(tmp_path / "another cache", "program-1")
    assert tag != with_program(tmp_path / "cache", "program-2")


def test_the_context_has_the_files_alike_and_the_machine_s_certificates(
    context: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "company.pem").write_text("company")
    (tmp_path / "lock").write_text("lock")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "company.pem"))
    (context / "files" / "start").chmod(0o700)
    (context / "other.Dockerfile").touch()
    archive = io.BytesIO()
    build(context, extra={"ray.txt": tmp_path / "lock"})._write(archive)
    archive.seek(0)
    with tarfile.open(fileobj=archive) as tar:
        entries = {entry.name: entry for entry in tar}
        assert set(entries) == {"Dockerfile", "files/start", "link", "ray.txt", "ca-certificates.crt"}
        assert entries["files/start"].mode == 0o755
        assert entries["Dockerfile"].mode == 0o644
        assert entries["link"].linkname == "files/start"
        assert {(entry.uid, entry.mtime, entry.uname) for entry in entries.values()} == {(0, 0, "")}
        content = {name: tar.extractfile(name) for name in ("ray.txt", "ca-certificates.crt")}
        assert {name: file.read() for name, file in content.items() if file} == {
            "ray.txt": b"lock",
            "ca-certificates.crt": b"company",
        }


def test_certificates_are_those_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_text(name)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "one"))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "two"))
    assert certificates() == b"one"
    monkeypatch.delenv("SSL_CERT_FILE")
    assert certificates() == b"two"
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "absent"))
    assert certificates() == b""
