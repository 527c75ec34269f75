"""CA certificates of a company, read from the file that a setting names."""

from __future__ import annotations

import re
import ssl
from pathlib import Path

from rayside.errors import InvalidSetting

_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")


def named(setting: str, value: str) -> Path:
    """Returns the file of CA certificates that a setting names. Raises InvalidSetting where it is none."""
    try:
        file = Path(value).expanduser().absolute()
    except RuntimeError:
        file = Path(value)
    if not are_in(file):
        raise _none(setting, value)
    return file


def are_in(file: Path) -> bool:
    """Returns whether it is a file of certificates that this user may read."""
    try:
        ssl.create_default_context().load_verify_locations(file)
    except (OSError, ValueError):
        return False
    return True


def certificates(setting: str, value: str) -> str:
    """Returns the certificates in the file that a setting names, in PEM, and nothing else of it.

    A private key that is in it stays behind. Raises InvalidSetting as `named`.
    """
    found = _CERTIFICATE.findall(named(setting, value).read_text(errors="replace"))
    if not found:
        raise _none(setting, value)
    return "".join(f"{certificate}\n" for certificate in found)


def _none(setting: str, value: str) -> InvalidSetting:
    return InvalidSetting(
        f"{setting} is {value!r}, and there is no file with certificates",
        hint="name the file of your company's CA certificates, in PEM",
    )
