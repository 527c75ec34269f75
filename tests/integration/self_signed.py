"""Makes a certificate that nobody has signed, for a server that plays an internet host on this machine."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def self_signed(host: str, folder: Path, days: int = 2) -> tuple[Path, Path]:
    """Returns the files of a certificate for that host, which may begin with `*.`, and of its key.

    It ends in so many `days`; where that is less than 0 it has ended.
    """
    if shutil.which("openssl") is None:
        why = "openssl not found; enable it by installing it"
        pytest.skip(why)
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    subject = ["-days", "2", "-subj", "/CN=a test", "-addext", f"subjectAltName=DNS:{host}"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", "req", "-x509", *curve, *subject, *files], check=True, capture_output=True)
    if days < 0:  # `req` makes none that has ended.
        again = ["-in", str(certificate), "-out", str(certificate), "-signkey", str(key), "-days", str(days)]
        subprocess.run(["openssl", "x509", *again], check=True, capture_output=True)
    return certificate, key
