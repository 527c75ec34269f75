"""Self-signed and CA-signed certificates for servers on this machine that play internet hosts."""

from __future__ import annotations

import datetime
import shutil
import subprocess
from pathlib import Path

import pytest


def self_signed(host: str, folder: Path, days: int = 2) -> tuple[Path, Path]:
    """Returns the files of a certificate and its key; the host may be an address, or begin with `*.`.

    If `days` is negative, the certificate expired that many days ago; else it is valid for 2 days.
    """
    if shutil.which("openssl") is None:
        why = "openssl not found; enable it by installing it"
        pytest.skip(why)
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    kind = "IP" if host.replace(".", "").isdecimal() else "DNS"
    subject = ["-days", "2", "-subj", "/CN=a test", "-addext", f"subjectAltName={kind}:{host}"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", "req", "-x509", *curve, *subject, *files], check=True, capture_output=True)
    if days < 0:  # `req` makes no expired certificate.
        again = ["-in", str(certificate), "-out", str(certificate), "-signkey", str(key), "-days", str(days)]
        subprocess.run(["openssl", "x509", *again], check=True, capture_output=True)
    return certificate, key


_AUTHORITY = """\
[ca]
default_ca = own
[own]
database = {folder}/index
serial = {folder}/serial
new_certs_dir = {folder}
default_md = sha256
policy = any
[any]
commonName = supplied
[names]
subjectAltName = IP:{address}
"""


def of_tomorrow(address: str, folder: Path) -> tuple[Path, Path]:
    """Returns the files of a certificate for that address that is not valid before tomorrow, and its key."""
    certificate, key = folder / "tomorrow.pem", folder / "tomorrow.key"
    (folder / "ca.cnf").write_text(_AUTHORITY.format(folder=folder, address=address))
    (folder / "index").touch()
    (folder / "serial").write_text("01\n")
    days = [datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(n) for n in (1, 2)]
    begins, ends = (day.strftime("%Y%m%d%H%M%SZ") for day in days)
    request = ["-newkey", "rsa:2048", "-nodes", "-subj", "/CN=a test", "-out", str(folder / "request")]
    signed = ["-selfsign", "-keyfile", str(key), "-in", str(folder / "request"), "-out", str(certificate)]
    when = ["-startdate", begins, "-enddate", ends, "-extensions", "names", "-notext", "-batch"]
    for words in (
        ["req", "-new", *request, "-keyout", str(key)],
        ["ca", "-config", str(folder / "ca.cnf"), *signed, *when],
    ):
        subprocess.run(["openssl", *words], check=True, capture_output=True)
    return certificate, key


def of_an_authority(host: str, folder: Path) -> tuple[Path, tuple[Path, Path]]:
    """Returns the file of a CA certificate, and the files of a certificate that it signed and its key."""
    authority, key = self_signed("authority.test", folder)
    signer = ["-CA", str(authority), "-CAkey", str(key), "-CAcreateserial", "-days", "2"]
    request, certificate, own_key = (folder / f"host.{end}" for end in ("csr", "pem", "key"))
    names = folder / "names"
    names.write_text(f"subjectAltName=IP:{host}\n")
    new = ["-newkey", "rsa:2048", "-nodes", "-subj", "/CN=a test", "-keyout", str(own_key)]
    for words in (
        ["req", *new, "-out", str(request)],
        ["x509", "-req", "-in", str(request), *signer, "-extfile", str(names), "-out", str(certificate)],
    ):
        subprocess.run(["openssl", *words], check=True, capture_output=True)
    return authority, (certificate, own_key)
