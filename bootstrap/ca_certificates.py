"""CA bundle of a company, read from the file that a setting names."""

from __future__ import annotations

import re
import ssl
from pathlib import Path

from rayside.errors import InvalidSetting

_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")


def named(setting: str, value: str) -> Path:
    """Returns the path of the CA bundle that a setting names. Raises InvalidSetting if it is none."""
    try:
        file = Path(value).expanduser().absolute()
    except RuntimeError:
        file = Path(value)
    if not are_in(file):
        raise _none(setting, value)
    return file


def are_in(file: Path) -> bool:
    """Returns whether the file is a CA bundle that this user may read."""
    try:
        ssl.create_default_context().load_verify_locations(file)
    except (OSError, ValueError):
        return False
    return True


def certificates(setting: str, value: str) -> str:
    """Returns only the certificates of the CA bundle that a setting names, as PEM.

    A private key in the file is left out. Raises InvalidSetting as `named`.
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
