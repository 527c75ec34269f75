"""Signs a bundle's manifest, and checks the signature, in the format of minisign.

https://jedisct1.github.io/minisign/, "Signature format" and "Public key format". The manifest has the digest
of all else, so that nothing else needs a signature. Of a difference, the whole bundle's manifest is signed:
where that is made of it again, the secret key is not.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import shutil
import tempfile
from pathlib import Path

from bootstrap.bundle.archive import MANIFEST, SIGNATURE, Archive
from bootstrap.errors import BadBundle, InvalidArgument, InvalidSetting, MissingProgram
from bootstrap.shell import Shell

# The manifest is hashed first, as minisign does by itself from 0.10 on.
_HASHED = b"ED"
_TRUSTED = "trusted comment: "


def signature(shell: Shell, text: bytes, key_file: Path, password: str, comment: str) -> bytes:
    """Returns a signature by the program minisign; the same for the same text, key and comment.

    Raises InvalidArgument where there is no such key, MissingProgram, CommandFailed.
    """
    require_signer(key_file)
    with tempfile.TemporaryDirectory() as name:
        message, signed = Path(name, MANIFEST), Path(name, SIGNATURE)
        message.write_bytes(text)
        files: list[str | Path] = ["-s", key_file, "-m", message, "-x", signed]
        command = ["minisign", "-S", *files, "-t", comment]
        shell.run(command, typed=f"{password}\n")
        return signed.read_bytes()


def require_signer(key_file: Path) -> None:
    """Raises InvalidArgument where there is no such key, MissingProgram where nothing signs with it."""
    if not key_file.is_file():
        raise InvalidArgument(f"there is no key {key_file}", hint="minisign -G makes one")
    if shutil.which("minisign") is None:
        raise MissingProgram(
            "minisign is not on this machine", hint="Debian, Ubuntu: apt-get install minisign"
        )


def public_key(given: str) -> bytes:
    """Returns a key from its text, as in RWQf6LRCGA9i..., or from minisign's file. Raises InvalidSetting."""
    text = given
    try:
        if Path(given).expanduser().is_file():
            text = Path(given).expanduser().read_text()
        key = base64.b64decode(text.strip().splitlines()[-1], validate=True)
    except (OSError, ValueError, IndexError):
        key = b""
    if len(key) != 42 or key[:2] != b"Ed":
        raise InvalidSetting(
            f"bundle_key is {given!r}, which is no public key of minisign, nor a file that has one",
            hint="give its second line, which begins with RW, or the path of minisign.pub",
        )
    return key


def require_signed(archive: Archive, text: bytes, key: bytes) -> None:
    """Checks that the owner of a public key has signed a manifest's text. Raises BadBundle, OSError."""
    require_signature(str(archive.file), archive.text(SIGNATURE), text, key)


def require_signature(place: str, signed: bytes | None, text: bytes, key: bytes) -> None:
    """Checks a signature, which may be lacking, of what is at that place. Raises BadBundle."""
    if signed is None:
        raise _wrong(place, "it is not signed")
    try:
        _, first, trusted, second = signed.decode().splitlines()
        made = base64.b64decode(first, validate=True)
        of_comment = base64.b64decode(second, validate=True)
    except (ValueError, binascii.Error):
        raise _wrong(place, "its signature is not in minisign's format") from None
    if len(made) != 74 or made[:2] != _HASHED or not trusted.startswith(_TRUSTED):
        raise _wrong(place, "its signature is not in minisign's format")
    if made[2:10] != key[2:10]:
        raise _wrong(place, "another key has signed it")
    comment = trusted.removeprefix(_TRUSTED).encode()
    is_by_key = _is_by(key, made[10:], hashlib.blake2b(text).digest()) and _is_by(
        key, of_comment, made[10:] + comment
    )
    if not is_by_key:
        raise _wrong(place, "its signature is not of this manifest")


def _is_by(key: bytes, signed: bytes, message: bytes) -> bool:
    # Not at the top: most commands check no signature, and this takes 20 ms.
    from nacl.exceptions import CryptoError
    from nacl.signing import VerifyKey

    try:
        VerifyKey(key[10:]).verify(message, signed)
    except CryptoError:
        return False
    return True


def _wrong(place: str, reason: str) -> BadBundle:
    return BadBundle(
        f"{place}: {reason}", hint="get it anew from whoever has the key, and ask them for the key"
    )
