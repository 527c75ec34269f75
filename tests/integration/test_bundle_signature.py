"""Tests signatures by minisign itself, and what is refused where a key is asked for."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from invoke.config import Config
from invoke.context import Context
from invoke.exceptions import Exit

import tasks
from bootstrap.bundle.archive import MANIFEST, SIGNATURE, Archive
from bootstrap.bundle.manifest import Manifest
from bootstrap.bundle.opened import Bundle, write
from bootstrap.bundle.signature import public_key, require_signed, signature
from bootstrap.console import Console
from bootstrap.errors import BadBundle, CommandFailed, InvalidArgument, InvalidSetting, MissingProgram
from bootstrap.settings import Settings
from bootstrap.shell import Shell
from bootstrap.sources.bundled import bundled
from bootstrap.step import check
from bootstrap.targets import choice
from bootstrap.verbs.bundle import Asked, _signing, inspect, join, make
from tests.bundles import small

pytestmark = pytest.mark.skipif(not shutil.which("minisign"), reason="minisign is not on this machine")
COMMENT = "Rayside bundle"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provides a folder with two keys, without passwords: one takes seconds, each time that it is used."""
    folder = tmp_path_factory.mktemp("some keys")
    for name in ("ours", "theirs"):
        command = ["minisign", "-G", "-W", "-p", f"{name}.pub", "-s", f"{name}.key"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder


def signer(keys: Path, name: str) -> Callable[[Manifest], bytes]:
    return lambda manifest: signature(Shell(), manifest.text(), keys / f"{name}.key", "", COMMENT)


def signed(folder: Path, keys: Path, name: str = "ours") -> Path:
    folder.mkdir(exist_ok=True)
    bundle = Bundle.of(small(folder))
    write(folder / "signed", bundle.manifest, bundle.read, sign=signer(keys, name))
    return folder / "signed"


def require(file: Path, key: Path) -> None:
    bundle = Bundle.of(file)
    whole = replace(bundle.manifest, since="").text()
    require_signed(bundle.archive, whole, public_key(str(key)))


def test_what_minisign_signs_is_signed_here_and_what_is_signed_here_minisign_takes(
    tmp_path: Path, keys: Path
) -> None:
    file = signed(tmp_path, keys)
    require(file, keys / "ours.pub")
    archive = Archive.of(file)
    for member in (MANIFEST, SIGNATURE):
        (tmp_path / member).write_bytes(archive.text(member) or b"")
    command = ["minisign", "-Vm", str(tmp_path / MANIFEST), "-p", str(keys / "ours.pub")]
    assert COMMENT in subprocess.check_output(command, text=True)


def test_the_same_manifest_has_the_same_signature(tmp_path: Path, keys: Path) -> None:
    files = [signed(tmp_path / name, keys) for name in ("first", "second")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_another_key_and_none_are_refused(tmp_path: Path, keys: Path) -> None:
    with pytest.raises(BadBundle, match="another key has signed it"):
        require(signed(tmp_path, keys), keys / "theirs.pub")
    with pytest.raises(BadBundle, match="is not signed"):
        require(tmp_path / "small bundle", keys / "ours.pub")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"rayside-bundle/1", b"rayside-bundle/1 "),
        (COMMENT.encode(), b"Rayside bundlf"),
        (b"trusted comment: ", b"trusted-comment: "),
    ],
    ids=["manifest", "comment", "format"],
)
def test_what_was_changed_since_is_refused(tmp_path: Path, keys: Path, old: bytes, new: bytes) -> None:
    file = signed(tmp_path, keys)
    archive = Archive.of(file)
    text, signature_ = archive.text(MANIFEST) or b"", archive.text(SIGNATURE) or b""
    changed = tmp_path / "changed"
    bundle = Bundle.of(file)
    write(changed, bundle.manifest, bundle.read, sign=lambda _: signature_.replace(old, new))
    with pytest.raises(BadBundle, match="signature is not"):
        require_signed(Archive.of(changed), text.replace(old, new), public_key(str(keys / "ours.pub")))


@pytest.mark.parametrize("text", [b"", b"\xff\n\n\n", b"a\nb\nc\nd\n", b"a\n" * 100], ids=range(4))
def test_what_is_no_signature_is_refused(tmp_path: Path, keys: Path, text: bytes) -> None:
    bundle = Bundle.of(small(tmp_path))
    write(tmp_path / "odd", bundle.manifest, bundle.read, sign=lambda _: text)
    with pytest.raises(BadBundle, match="not in minisign's format"):
        require(tmp_path / "odd", keys / "ours.pub")


@pytest.mark.parametrize("key", ["", "RWQ", "no key", "/nowhere/minisign.pub", "A" * 56])
def test_what_is_no_key_is_refused(key: str) -> None:
    with pytest.raises(InvalidSetting, match="no public key of minisign"):
        public_key(key)


def test_a_key_that_is_none_and_one_that_is_not_there_are_said(tmp_path: Path, keys: Path) -> None:
    (keys / "no.key").write_text("no key\n")
    with pytest.raises(CommandFailed):
        signed(tmp_path, keys, name="no")
    with pytest.raises(InvalidArgument, match="there is no key"):
        signed(tmp_path, keys, name="nobody's")
    assert not (tmp_path / "signed").exists()


def test_a_key_that_can_not_sign_is_said_before_anything_is_made(
    tmp_path: Path, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Begun(Exception):
        pass

    def begin(*_: object) -> None:
        raise Begun

    monkeypatch.setattr(choice, "wait_for_engine", begin)
    settings, file = Settings(target="kind"), tmp_path / "a bundle"
    (keys / "no.key").write_text("no key\n")
    for name, error in (("nobody's", InvalidArgument), ("no", CommandFailed), ("ours", Begun)):
        with pytest.raises(error):
            make(settings, Console(), file, Asked(signer=keys / f"{name}.key"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingProgram, match="minisign"):
        make(settings, Console(), file, Asked(signer=keys / "ours.key"))


def test_the_password_of_a_key_is_asked_for_once_and_tried_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    secret, public = tmp_path / "secret.key", tmp_path / "secret.pub"
    Shell().run(["minisign", "-G", "-p", public, "-s", secret], typed="pass word\npass word\n")

    def type_it(prompt: str) -> str:
        asked.append(prompt)
        return passwords.pop()

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("getpass.getpass", type_it)
    passwords = ["pass word", "wrong"]
    with pytest.raises(CommandFailed, match=r"(?i)wrong password"):
        _signing(Shell(), secret)
    sign = _signing(Shell(), secret)
    bundle = Bundle.of(small(tmp_path))
    write(tmp_path / "signed", bundle.manifest, bundle.read, sign=sign)
    require(tmp_path / "signed", public)
    assert len(asked) == 2


def test_up_takes_nothing_that_the_key_has_not_signed(tmp_path: Path, keys: Path) -> None:
    settings = Settings(source="bundle", bundle=str(signed(tmp_path, keys)), cache_folder=tmp_path / "cache")
    for key, error in (("ours", None), ("theirs", "another key")):
        source = bundled(replace(settings, bundle_key=str(keys / f"{key}.pub")), tmp_path / "record", Shell())
        status = check(source.steps[:1])["bundle"]
        assert (error is None) == (status.error is None)
        assert error is None or error in status.detail


def test_nothing_is_joined_that_the_key_has_not_signed(
    tmp_path: Path, keys: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = Bundle.of(signed(tmp_path / "new", keys))
    (tmp_path / "a-1-py3-none-any.whl").write_bytes(b"wheel")
    old = small(tmp_path, [tmp_path / "a-1-py3-none-any.whl"])
    file, joined = tmp_path / "difference", tmp_path / "joined"

    def verb(*, key: str, setting: str = "") -> None:
        context = Context(Config({"rayside": {"bundle_key": setting} if setting else {}}))
        tasks.bundle(context, file=str(joined), since=str(old), join=str(file), bundle_key=key or None)

    for sign, error in ((None, "it is not signed"), (signer(keys, "theirs"), "another key has signed it")):
        write(file, whole.manifest, whole.read, Bundle.of(old).manifest, sign)
        for key, setting in (("ours", ""), ("", "ours")):
            given, kept = (str(keys / f"{name}.pub") if name else "" for name in (key, setting))
            with pytest.raises(Exit):
                verb(key=given, setting=kept)
            assert error in capsys.readouterr().err
            assert not joined.exists()
    verb(key=str(keys / "theirs.pub"))
    assert joined.exists()


def test_a_public_key_is_refused_where_a_bundle_is_made(
    tmp_path: Path, keys: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "wait_for_engine", lambda *_: pytest.fail("it would be made"))
    key = str(keys / "ours.pub")
    with pytest.raises(Exit):
        tasks.bundle(Context(), file=str(tmp_path / "a bundle"), bundle_key=key)
    assert "--bundle-key is for a bundle that is there" in capsys.readouterr().err


def test_a_bundle_that_is_joined_of_a_signed_difference_is_signed(tmp_path: Path, keys: Path) -> None:
    earlier = tmp_path / "earlier"
    earlier.mkdir()
    (earlier / "a-1-py3-none-any.whl").write_bytes(b"wheel")
    whole, old = Bundle.of(signed(tmp_path / "new", keys)), small(earlier, [earlier / "a-1-py3-none-any.whl"])
    difference = tmp_path / "difference"
    write(difference, whole.manifest, whole.read, Bundle.of(old).manifest, signer(keys, "ours"))
    require(difference, keys / "ours.pub")
    join(Console(), tmp_path / "joined", old, difference)
    assert (tmp_path / "joined").read_bytes() == (tmp_path / "new" / "signed").read_bytes()
    inspect(Console(), tmp_path / "joined", str(keys / "ours.pub"))
    with pytest.raises(BadBundle):
        inspect(Console(), tmp_path / "joined", str(keys / "theirs.pub"))
