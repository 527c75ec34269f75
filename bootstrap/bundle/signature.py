"""Signatures of a bundle's manifest, made and verified by the program minisign.

The manifest has the digest of all else, so that nothing else needs a signature.
"""

from __future__ import annotations

import base64
import shutil
import tempfile
from pathlib import Path

from bootstrap.bundle.archive import MANIFEST, SIGNATURE
from bootstrap.errors import BadBundle
from rayside.errors import InvalidArgument, InvalidSetting, MissingProgram
from rayside.plain import line
from rayside.system.shell import Shell

# Limit: bytes of a signature; minisign's own comments have at most 9 KiB together.
_LONGEST = 16 * 1024


def signature(shell: Shell, text: bytes, key_file: Path, password: str, comment: str) -> bytes:
    """Returns a signature; the same for the same text, key and comment.

    Raises InvalidArgument where there is no such key, MissingProgram, CommandFailed.
    """
    require_signer(key_file)
    with tempfile.TemporaryDirectory() as name:
        message, signed = Path(name, MANIFEST), Path(name, SIGNATURE)
        message.write_bytes(text)
        files: list[str | Path] = ["-s", key_file, "-m", message, "-x", signed]
        shell.run(["minisign", "-S", *files, "-t", comment], typed=f"{password}\n")
        return signed.read_bytes()


def require_signer(key_file: Path) -> None:
    """Raises InvalidArgument if there is no such key file, MissingProgram without minisign."""
    if not key_file.is_file():
        raise InvalidArgument(f"there is no key {key_file}", hint="minisign -G makes one")
    _require_minisign()


def public_key(given: str) -> str:
    """Returns the text RW... of a public key, given as text or as minisign's file. Raises InvalidSetting."""
    text = given
    try:
        if Path(given).expanduser().is_file():
            text = Path(given).expanduser().read_text()
        text = text.strip().splitlines()[-1]
        key = base64.b64decode(text, validate=True)
    except (OSError, RuntimeError, ValueError, IndexError):
        key = b""
    if len(key) != 42 or key[:2] != b"Ed":
        raise InvalidSetting(
            f"bundle_key is {given!r}, which is no public key of minisign, nor a file that has one",
            hint="give its second line, which begins with RW, or the path of minisign.pub",
        )
    return text


def require_signature(place: str, signed: bytes | None, text: bytes, key: str) -> None:
    """Verifies the signature of a manifest's text by a public key; errors name `place`.

    `signed` is None without a signature. Raises BadBundle, MissingProgram.
    """
    if signed is None:
        raise _wrong(place, "it is not signed")
    if len(signed) > _LONGEST:
        raise _wrong(place, f"its signature has {len(signed)} bytes")
    _require_minisign()
    with tempfile.TemporaryDirectory() as name:
        message, signature = Path(name, MANIFEST), Path(name, SIGNATURE)
        message.write_bytes(text)
        signature.write_bytes(signed)
        files: list[str | Path] = ["-m", MANIFEST, "-x", SIGNATURE]
        # minisign takes a key file, too, where it gets no key; this one is public.
        outcome = Shell().run(["minisign", "-V", "-q", *files, "-P", key], cwd=Path(name), check=False)
    if outcome.code != 0:
        says = line(f"{outcome.out} {outcome.err}", 300).strip()
        raise _wrong(place, "another key has signed it" if "key id" in says else f"minisign says: {says}")


def _require_minisign() -> None:
    if shutil.which("minisign") is None:
        raise MissingProgram(
            "minisign, which signatures of bundles need, is not on this machine",
            hint="Debian, Ubuntu: apt-get install minisign; macOS: brew install minisign",
        )


def _wrong(place: str, reason: str) -> BadBundle:
    return BadBundle(
        f"{place}: {reason}", hint="get it anew from whoever has the key, and ask them for the key"
    )
