"""Is a private registry with a login, as behind an air gap; its images are made of the shell of its own pod.

Its image `batch` has three tags: `1`, for this processor; `laptop`, for another one; and `daily`, which is
made anew whenever /tmp/release has changed. It speaks as much of the protocol as a node needs to pull
(https://github.com/opencontainers/distribution-spec/blob/main/spec.md#pull).
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import platform
import re
import subprocess
import tarfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

LOGIN = "Basic " + base64.b64encode(b"lab:behind-the-gap").decode()
TAGS = ("1", "laptop", "daily")
RELEASE = Path("/tmp/release")
OCI = "application/vnd.oci.image"
MANIFEST = f"{OCI}.manifest.v1+json"
# Images name architectures in other words than the kernel: this one's, and another's.
ARCHITECTURES = {"x86_64": ("amd64", "arm64"), "aarch64": ("arm64", "amd64")}
# Bytes 18 and 19 of a program say which processor it is for. 50 is Itanium, which nothing here emulates.
PROCESSOR, ITANIUM = slice(18, 20), (50).to_bytes(2, "little")

# What was made, by its digest.
blobs: dict[str, bytes] = {}


def make(tag: str) -> str:
    """Makes the image of a tag; returns the digest of its manifest."""
    own, other = ARCHITECTURES[platform.machine()]
    layer = keep(packed(contents(tag)), f"{OCI}.layer.v1.tar")
    config = {
        "architecture": other if tag == "laptop" else own,
        "os": "linux",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": keep(json.dumps(config).encode(), f"{OCI}.config.v1+json"),
        "layers": [layer],
    }
    return str(keep(json.dumps(manifest).encode(), MANIFEST)["digest"])


def contents(tag: str) -> dict[str, bytes]:
    """Returns the files of an image: a shell, the libraries that it loads, and the name of its release."""
    loaded = subprocess.run(["ldd", "/bin/sh"], capture_output=True, text=True, check=True).stdout
    shell = bytearray(Path("/bin/sh").read_bytes())
    if tag == "laptop":
        shell[PROCESSOR] = ITANIUM
    libraries = {name: Path(name).read_bytes() for name in re.findall(r"(/\S+) \(0x", loaded)}
    release = RELEASE.read_bytes() if tag == "daily" else b"1\n"
    return {"/bin/sh": bytes(shell), **libraries, "/release": release}


def packed(files: dict[str, bytes]) -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name.lstrip("/"))
            member.size, member.mode = len(content), 0o755
            tar.addfile(member, io.BytesIO(content))
    return archive.getvalue()


def keep(content: bytes, media_type: str) -> dict[str, object]:
    """Keeps a content, and returns how others name it."""
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    blobs[digest] = content
    return {"mediaType": media_type, "digest": digest, "size": len(content)}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.headers["Authorization"] != LOGIN:
            self.answer(401, b"", {"WWW-Authenticate": 'Basic realm="lab"'})
            return
        asked = re.fullmatch(r"/v2/batch/(manifests|blobs)/([\w:]+)", self.path)
        kind, name = asked.groups() if asked else ("", "")
        digest = make(name) if kind == "manifests" and name in TAGS else name
        if digest not in blobs:
            self.answer(404, b"", {})
            return
        media_type = MANIFEST if kind == "manifests" else "application/octet-stream"
        self.answer(200, blobs[digest], {"Content-Type": media_type, "Docker-Content-Digest": digest})

    def do_HEAD(self) -> None:
        self.do_GET()

    def answer(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)


if __name__ == "__main__":
    RELEASE.write_text("1\n")
    ThreadingHTTPServer(("", 5000), Handler).serve_forever()
