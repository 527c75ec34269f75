"""Tests that what is no certificate has no end."""

from __future__ import annotations

import base64

import pytest

from bootstrap.kube.certificate import end


def pem(der: bytes) -> bytes:
    head, tail = b"-----BEGIN CERTIFICATE-----\n", b"\n-----END CERTIFICATE-----\n"
    return head + base64.b64encode(der) + tail


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"a key",
        pem(b""),
        pem(b"\x30"),
        pem(b"\x30\x02\x30\x00"),
        pem(b"\x30\x84\xff\xff\xff\xff"),
        "é".encode(),
    ],
)
def test_what_is_no_certificate_is_an_error(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        end(content)
