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
from bootstrap.bundle.archive import MANIFEST, SIGNATURE
from bootstrap.bundle.manifest import Manifest
from bootstrap.bundle.opened import Bundle, write
from bootstrap.bundle.signature import public_key, require_signature, signature
from bootstrap.errors import BadBundle
from bootstrap.settings import Settings
from bootstrap.sources.bundle_origin import RECORD
from bootstrap.sources.bundled import bundled
from bootstrap.targets import choice
from bootstrap.verbs.bundle import _signing
from rayside.errors import CommandFailed, InvalidArgument, InvalidSetting, MissingProgram
from rayside.steps.graph import check, up
from rayside.system.shell import Shell
from tests.bundles import minisign_keys, small
from tests.unit.rayside.test_graph import Diary

pytestmark = pytest.mark.skipif(not shutil.which("minisign"), reason="minisign is not on this machine")
COMMENT = "Rayside bundle"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provides a folder with two keys, without passwords: one takes seconds, each time that it is used."""
    folder = tmp_path_factory.mktemp("some keys")
    for name in ("ours", "theirs"):
        minisign_keys(folder, name)
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
    require_signature(str(file), bundle.signature, bundle.manifest.text(), public_key(str(key)))


def test_what_minisign_signs_is_signed_here_and_what_is_signed_here_minisign_takes(
    tmp_path: Path, keys: Path
) -> None:
    file = signed(tmp_path, keys)
    require(file, keys / "ours.pub")
    for member in (MANIFEST, SIGNATURE):
        (tmp_path / member).write_bytes(Bundle.of(file).archive.text(member) or b"")
    command = ["minisign", "-Vm", str(tmp_path / MANIFEST), "-p", str(keys / "ours.pub")]
    assert COMMENT in subprocess.check_output(command, text=True)


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
    bundle = Bundle.of(signed(tmp_path, keys))
    text, signature_ = bundle.manifest.text(), bundle.signature or b""
    with pytest.raises(BadBundle, match="minisign says: "):
        require_signature(
            *("a bundle", signature_.replace(old, new), text.replace(old, new)),
            public_key(str(keys / "ours.pub")),
        )


@pytest.mark.parametrize("text", [b"", b"\xff\n\n\n", b"a\nb\nc\nd\n", b"a\n" * 100], ids=range(4))
def test_what_is_no_signature_is_refused(tmp_path: Path, keys: Path, text: bytes) -> None:
    bundle = Bundle.of(small(tmp_path))
    write(tmp_path / "odd", bundle.manifest, bundle.read, sign=lambda _: text)
    with pytest.raises(BadBundle, match="minisign says: ") as refused:
        require(tmp_path / "odd", keys / "ours.pub")
    assert refused.value.message.isprintable()


def test_a_signature_without_end_is_not_handed_on(keys: Path) -> None:
    with pytest.raises(BadBundle, match="its signature has 20000 bytes"):
        require_signature("a bundle", b"x" * 20_000, b"{}", public_key(str(keys / "ours.pub")))


def test_without_minisign_it_is_said_how_to_get_it(
    tmp_path: Path, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = signed(tmp_path, keys)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingProgram, match="minisign") as missing:
        require(file, keys / "ours.pub")
    assert "apt-get install minisign" in missing.value.hint


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
    source = bundled(
        replace(settings, bundle_key=str(keys / "ours.pub")), tmp_path / "record", Shell(), is_for_later=True
    )
    assert check(source.steps[:1])["bundle"].error is None
    with pytest.raises(BadBundle, match="another key"):
        bundled(replace(settings, bundle_key=str(keys / "theirs.pub")), tmp_path / "record", Shell())


def test_who_signed_it_is_asked_before_what_it_is_for(tmp_path: Path, keys: Path) -> None:
    """A bundle of another version leads to the code in it: that of somebody unknown is not named."""
    bundle = Bundle.of(small(tmp_path))
    other = replace(bundle.manifest, version=replace(bundle.manifest.version, ray="1.0"))
    for sign, message in ((None, "it is not signed"), (signer(keys, "ours"), "is for Ray 1.0")):
        write(tmp_path / "other", other, bundle.read, sign=sign)
        settings = Settings(
            source="bundle",
            bundle=str(tmp_path / "other"),
            bundle_key=str(keys / "ours.pub"),
            cache_folder=tmp_path,
        )
        with pytest.raises(BadBundle, match=message) as refused:
            bundled(settings, tmp_path / "record", Shell())
        # What is taken out is run next: it is checked before, as the docs say, which one line can't.
        assert "tar" not in refused.value.hint


@pytest.mark.parametrize("is_there", [True, False], ids=["there", "gone"])
def test_a_key_that_is_set_later_counts_for_a_cluster_that_is_there(
    tmp_path: Path, keys: Path, is_there: bool
) -> None:
    record = tmp_path / RECORD
    for file, error in ((tmp_path / "small bundle", "it is not signed"), (tmp_path / "signed", None)):
        signed(tmp_path, keys)
        settings = Settings(source="bundle", bundle=str(file), cache_folder=tmp_path / "cache")
        bundle_steps = ("bundle", "bundle-record")
        up([step for step in bundled(settings, record, Shell()).steps if step.name in bundle_steps], Diary())
        if not is_there:
            file.unlink()
        later = replace(settings, bundle="", bundle_key=str(keys / "ours.pub"))
        status = check([bundled(later, record, Shell()).steps[0]])["bundle"]
        assert (error is None) == (status.error is None)
        assert error is None or error in status.detail


def test_nothing_is_inspected_that_the_key_has_not_signed(
    tmp_path: Path, keys: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs, ours = signed(tmp_path / "theirs", keys, "theirs"), signed(tmp_path / "ours", keys)

    def verb(file: Path, *, key: str, setting: str = "") -> None:
        context = Context(Config({"rayside": {"bundle_key": setting} if setting else {}}))
        tasks.bundle(context, file=str(file), inspect=True, bundle_key=key or None)

    unsigned = tmp_path / "ours" / "small bundle"
    for file, error in ((unsigned, "it is not signed"), (theirs, "another key has signed it")):
        for key, setting in (("ours", ""), ("", "ours")):
            given, kept = (str(keys / f"{name}.pub") if name else "" for name in (key, setting))
            with pytest.raises(Exit):
                verb(file, key=given, setting=kept)
            assert error in capsys.readouterr().err
    verb(ours, key=str(keys / "ours.pub"))
    assert "is whole" in capsys.readouterr().out


def test_a_public_key_is_refused_where_a_bundle_is_made(
    tmp_path: Path, keys: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "wait_for_engine", lambda *_: pytest.fail("it would be made"))
    key = str(keys / "ours.pub")
    with pytest.raises(Exit):
        tasks.bundle(Context(), file=str(tmp_path / "a bundle"), bundle_key=key)
    assert "--bundle-key is for a bundle that is there" in capsys.readouterr().err
