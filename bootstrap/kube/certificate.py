"""Reads when a certificate ends, out of its DER form (RFC 5280, section 4.1)."""

from __future__ import annotations

import ssl
from datetime import datetime, timezone

_CONTEXT_0, _UTC_TIME = 0xA0, 0x17


def end(pem: bytes) -> datetime:
    """Returns the moment, in UTC, at which the first certificate ends. Raises ValueError unless it is one."""
    begin = pem.find(b"-----BEGIN CERTIFICATE-----")
    whole = pem[begin:].partition(b"-----END CERTIFICATE-----")
    der = ssl.PEM_cert_to_DER_cert(b"".join(whole[:2]).decode("ascii"))
    try:
        fields = _parts(_parts(_parts(der)[0][1])[0][1])
        # A version comes first, where it is not 1; then a serial number, an algorithm and the issuer.
        validity = fields[4 if fields[0][0] == _CONTEXT_0 else 3][1]
        kind, text = _parts(validity)[1]
    except IndexError:
        raise ValueError("not a certificate") from None
    digits = text.decode("ascii").removesuffix("Z")
    if kind == _UTC_TIME:
        digits = ("20" if int(digits[:2]) < 50 else "19") + digits
    return datetime.strptime(digits, "%Y%m%d%H%M%S").replace(tzinfo=timezone.utc)


def _parts(content: bytes) -> list[tuple[int, bytes]]:
    """Returns the tag and the content of each value that `content` has, one after the other."""
    parts = []
    while content:
        tag, length, start = content[0], content[1], 2
        if length & 0x80:
            start += length & 0x7F
            length = int.from_bytes(content[2:start], "big")
        parts.append((tag, content[start : start + length]))
        content = content[start + length :]
    return parts
