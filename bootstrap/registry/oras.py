"""OCI registry client: runs the program oras for one registry, and explains its errors.

oras connects to the registry, its token server and its storage, and takes logins from the Docker
configuration and its credential helpers. Its output may quote the registry, so it is bounded and sanitized
before it is shown.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bootstrap.errors import LowDisk, RegistryRefused, RegistryUnreachable
from bootstrap.registry.address import Address
from rayside.errors import CommandFailed, RaysideError
from rayside.plain import line
from rayside.system.shell import Outcome, Shell

# Timeout in seconds of a small request; oras itself retries one that a busy registry refuses.
_PATIENCE = 120.0
# oras reads no larger manifest.
_LONGEST_MANIFEST = 4 * 1024 * 1024
_ABSENT = re.compile(r": not found$", re.MULTILINE)
_STATUS = re.compile(r"response status code (\d{3})")
_FULL = re.compile(r"no space left|quota|upper limit|insufficient storage|disk full", re.IGNORECASE)
_LOGIN = re.compile(
    r"credential not found|unauthorized|denied|missing username or password|"
    r"failed to (?:unmarshal|resolve credential|decode)|invalid config format",
    re.IGNORECASE,
)
# The distribution specification's error codes in oras' format ("Error Codes").
_NO_NAME = re.compile(r": not found$|\bname (?:unknown|invalid): ", re.MULTILINE)
# Go's messages for a request without a response: an address, then the reason.
_UNREACHED = re.compile(r'\b(?:Get|Head|Post|Put|Patch) "https?://|dial tcp|x509: |tls: |EOF|timeout')
_DIGEST = re.compile(r"^(?:Copied|Uploaded)\s+([0-9a-f]{12}) ")


@dataclass(frozen=True)
class Oras:
    """A registry, accessed with the program oras.

    Attributes:
        ca_file: CA bundle that is trusted for the registry and its redirects, in addition to this machine's
            CAs.
    """

    shell: Shell
    program: Path
    address: Address
    ca_file: Path | None = None

    def require(self, repository: str) -> None:
        """Uploads a few bytes to a repository: no other request shows whether the registry accepts uploads.

        Raises RegistryUnreachable, RegistryRefused.
        """
        with tempfile.TemporaryDirectory() as folder:
            # An upload of existing content would be skipped.
            Path(folder, "question").write_bytes(
                b"Rayside asks whether it may upload: " + os.urandom(8).hex().encode()
            )
            outcome = self._run(
                ["blob", "push", *self._options()], self.named(repository), "question", cwd=folder
            )
        self._require(outcome, f"to take anything for {self.address.repository(repository)}", repository)

    def manifest(self, repository: str, reference: str) -> bytes | None:
        """Returns the manifest of a tag, or of a digest as in sha256:...; None if there is none.

        Raises RegistryUnreachable, RegistryRefused.
        """
        return self._fetched("fetch", repository, reference, _LONGEST_MANIFEST)

    def configuration(self, repository: str, digest: str, most: int) -> bytes | None:
        """Returns the configuration of the manifest with that digest; None and errors as in `manifest`."""
        return self._fetched("fetch-config", repository, digest, most)

    def digest_for(self, repository: str, digest: str, platform: str) -> str | None:
        """Returns the digest of a platform's manifest, as in linux/arm64, in an index with several.

        The digest of a single image is returned unchanged; None if there is none. Raises as `manifest`.
        """
        words = ["manifest", "fetch", "--descriptor", "--platform", platform, *self._options()]
        outcome = self._run(words, self.named(repository, digest))
        if outcome.code and ": not found" in outcome.err:
            return None
        self._require(outcome, f"to give {repository}@{digest}")
        found = re.search(r'"digest":"(sha256:[0-9a-f]{64})"', outcome.out)
        return found[1] if found else None

    def send(self, layout: Path, digest: str, repository: str, moved: Callable[[str], None]) -> None:
        """Uploads the content of a layout, a folder or a tar file, at a digest, with all that it refers to.

        `moved` gets the first twelve digits of each digest that was sent. Raises as `require`.
        """
        with self._link(layout) as folder:
            words = ["cp", "--no-tty", "--from-oci-layout", *self._options("to-")]
            places = (f"layout@{digest}", self.named(repository))
            outcome = self._run(words, *places, cwd=folder, moved=moved, is_long=True)
            if "blob unknown" in outcome.err:  # another client sends it at the same time
                outcome = self._run(words, *places, cwd=folder, moved=moved, is_long=True)
        self._require(outcome, f"to take {self.address.repository(repository)}", repository)

    def mount(self, repository: str, digest: str, other: str, tag: str) -> None:
        """Tags a digest of one repository in another one, without a second upload."""
        words = ["cp", "--no-tty", *self._options("from-"), *self._options("to-")]
        outcome = self._run(words, self.named(repository, digest), self.named(other, tag), is_long=True)
        self._require(outcome, f"to take {self.address.repository(other)}:{tag}", other)

    def tag(self, repository: str, digest: str, tag: str) -> None:
        outcome = self._run(["tag", *self._options()], self.named(repository, digest), tag)
        self._require(outcome, f"to take {self.address.repository(repository)}:{tag}", repository)

    def fetch(self, repository: str, digest: str, layout: Path, moved: Callable[[str], None]) -> None:
        """Downloads the content at a digest, with all that it refers to, into the folder of a layout.

        Existing content is not downloaded again. Raises LowDisk, and as `require`.
        """
        layout.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._link(layout) as folder:
            words = ["cp", "--no-tty", "--to-oci-layout", *self._options("from-")]
            outcome = self._run(
                *(words, self.named(repository, digest), "layout"), cwd=folder, moved=moved, is_long=True
            )
        if outcome.code and "no space left on device" in outcome.err:
            raise LowDisk(
                f"the disk filled up while {self.address} sent {self.address.repository(repository)}",
                hint="free some, then run it again: it goes on from there",
            )
        self._require(outcome, f"to give {self.address.repository(repository)}@{digest}")

    def named(self, repository: str, reference: str = "") -> str:
        """Returns the full name of one of our repositories, with a tag or a digest."""
        mark = "@" if reference.startswith("sha256:") else ":" if reference else ""
        return f"{self.address.host}/{self.address.repository(repository)}{mark}{reference}"

    # --- the program ---------------------------------------------------------------------

    def _fetched(self, command: str, repository: str, reference: str, most: int) -> bytes | None:
        with tempfile.TemporaryDirectory() as folder:
            words = ["manifest", command, "--output", "fetched", *self._options()]
            outcome = self._run(words, self.named(repository, reference), cwd=folder)
            if outcome.code and _ABSENT.search(outcome.err):
                return None
            self._require(outcome, f"to give {self.address.repository(repository)}:{reference}")
            with Path(folder, "fetched").open("rb") as file:
                return file.read(most)

    @contextmanager
    def _link(self, layout: Path) -> Iterator[str]:
        """Yields a folder with a link `layout` to a layout, whose own path may contain `:` or `@`."""
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "layout").symlink_to(layout.absolute())
            yield folder

    def _options(self, side: str = "") -> list[str]:
        # By default oras uses no TLS for localhost, but TLS for 127.0.0.1.
        plain = self.address.is_loopback and not self.ca_file
        options = [f"--{side}plain-http={'true' if plain else 'false'}"]
        if self.ca_file and sys.platform == "darwin":  # Go ignores SSL_CERT_FILE there
            options += [f"--{side}ca-file", str(self.ca_file)]
        return options

    def _run(
        self,
        words: list[str],
        *places: str,
        cwd: str | None = None,
        moved: Callable[[str], None] = lambda _: None,
        is_long: bool = False,
    ) -> Outcome:
        def note(text: str) -> None:
            if found := _DIGEST.match(text):
                moved(found[1])

        with tempfile.TemporaryDirectory() as folder:
            env = {**os.environ, **self._trusting(Path(folder))}
            try:
                return self.shell.run(
                    [self.program, *words, *places],
                    env=env,
                    cwd=Path(cwd) if cwd else None,
                    on_line=note,
                    check=False,
                    limit=None if is_long else _PATIENCE,
                )
            except CommandFailed:
                raise RegistryUnreachable(
                    f"the registry {self.address} did not answer within {_PATIENCE:g} s",
                    hint="run the command again; else ask who looks after the registry",
                ) from None

    def _trusting(self, folder: Path) -> dict[str, str]:
        """Returns the variable with which Go also trusts the registry's CA bundle, and Requests' CA bundle.

        oras' own option replaces all other CAs: a registry's storage is often a public cloud's.
        """
        known = os.environ.get("SSL_CERT_FILE") or os.environ.get("REQUESTS_CA_BUNDLE") or ""
        texts = [
            file.read_text(errors="replace")
            for file in (self.ca_file, Path(known))
            if file and file.is_file()
        ]
        if not texts:
            return {}
        trusted = folder / "ca-certificates.pem"
        trusted.write_text("\n".join(texts))
        return {"SSL_CERT_FILE": str(trusted)}

    # --- errors --------------------------------------------------------------------------

    def _require(self, outcome: Outcome, what: str, repository: str = "") -> None:
        if outcome.code:
            raise self.explained(outcome.err, what, repository)

    def explained(self, error: str, what: str, repository: str = "") -> RaysideError:
        """Returns the error for the program's message, with the one thing to do.

        `what` was requested from the registry; `repository` is the target of an upload, if it was one.
        """
        own = error.replace("Error response from registry: ", "").replace("Error: ", "")
        words = line(re.sub(r"\s+", " ", own).strip(), 400)
        status = int(found[1]) if (found := _STATUS.search(error)) else 0
        if not status and not _LOGIN.search(error) and _UNREACHED.search(error):
            hint = "correct its name; or set HTTPS_PROXY where this machine needs one, and NO_PROXY where not"
            if "x509: " in error:
                hint = "name the file of its CA certificate, in PEM: INVOKE_RAYSIDE_REGISTRY_CA=FILE; or set "
                hint += "this machine's clock right"
            return RegistryUnreachable(f"the registry {self.address} can't be reached: {words}", hint=hint)
        hint = "ask who looks after the registry, then run the command again, which goes on from there"
        if status == 507 or _FULL.search(error):
            hint = "it is full: have room made there, then run the command again, which goes on from there"
        elif status in (401, 403) or (not status and _LOGIN.search(error)):
            hint = f"docker login {self.address.host}, as one who may do that"
        elif repository and (status in (400, 404) or _NO_NAME.search(error)):
            # Many registries don't create repositories by themselves.
            named = self.address.repository(repository)
            hint = f"make the repository {named}, or its project, there first, or name another HOST/PATH"
        return RegistryRefused(f"the registry {self.address} refuses {what}: {words}", hint=hint)
