"""Does `bundle`: makes the file that `up --bundle` takes everything out of, or shows what is in one."""

from __future__ import annotations

import getpass
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bootstrap import step
from bootstrap.bundle.archive import SIGNATURE
from bootstrap.bundle.blobs import Blob
from bootstrap.bundle.manifest import IMAGES, PROGRAMS, Manifest
from bootstrap.bundle.opened import Bundle, this_platform, this_python, write
from bootstrap.bundle.sbom import sbom
from bootstrap.bundle.signature import public_key, require_signed, signature
from bootstrap.console import Console
from bootstrap.delivery.baked import baked
from bootstrap.errors import InvalidArgument
from bootstrap.settings import NEWEST_PYTHON, OLDEST_PYTHON, Settings
from bootstrap.shell import Shell
from bootstrap.sources.bundle_file import BundleFile, Wheels, require_free, unwritable
from bootstrap.steps.engine import Engine
from bootstrap.steps.machine import Python
from bootstrap.targets import choice

Sign = Callable[[Manifest], bytes]


@dataclass(frozen=True)
class Asked:
    """What kind of bundle is asked for.

    Attributes:
        platform: as in linux/amd64; default: this machine's.
        python: versions, with commas between; default: this Python's.
        since: the bundle to which only the difference is made; default: all is.
        signer: the file of a secret key; default: it is not signed.
    """

    platform: str = ""
    python: str = ""
    since: Path | None = None
    signer: Path | None = None


def make(settings: Settings, console: Console, file: Path, asked: Asked) -> None:
    """Makes a bundle, and says how it is used. Raises InvalidArgument, BadBundle."""
    began = time.monotonic()
    manifest = written(settings, console, file, asked)
    size, quoted = file.stat().st_size / 10**6, shlex.quote(file.name)
    console.result(f"{file} is made: {size:,.0f} MB, {time.monotonic() - began:.0f} s")
    if asked.since:
        console.result(f"It is the difference to {asked.since}. Where that is:")
        console.result(f"    ./invokew bundle WHOLE --since {asked.since.name} --join {file.name}")
        return
    console.result("Where there is no network, take this checkout out of it, and use it:")
    checkout = manifest.checkout
    console.result(f"    tar -xOf {quoted} {checkout.name} > rayside.tar")
    console.result(f"    echo '{checkout.digest}  rayside.tar' | sha256sum --check && tar -xf rayside.tar")
    console.result(f"    rayside/invokew up --bundle {quoted}")


def written(settings: Settings, console: Console, file: Path, asked: Asked) -> Manifest:
    """Writes a bundle of what the target kind needs. Raises InvalidArgument, BadBundle."""
    platform, since = asked.platform, asked.since
    if not this_platform().startswith("linux/"):
        raise InvalidArgument(
            f"a bundle has the programs of the machine that makes it, and this is {this_platform()}",
            hint="make it on a Linux machine",
        )
    if platform and platform != this_platform():
        raise InvalidArgument(
            f"images are made for the machine that makes them, which is {this_platform()}, not {platform}",
            hint=f"make the bundle on a machine with {platform}",
        )
    require_free(file)
    pythons = _pythons(asked.python)
    earlier = Bundle.of(since).manifest if since else None
    if earlier and earlier.since:
        raise InvalidArgument(f"{since} is itself only a difference", hint="name a whole bundle")
    shell = Shell()
    sign = _signing(shell, asked.signer)
    target = choice.to_bundle(settings, shell)
    choice.wait_for_engine(settings, console.event)
    source, folder = target.origin, settings.cache_folder
    # The node's own images alone are baked into it: the others are in the bundle once, for all uses.
    node = baked(shell, folder, source)
    images = {name: source.resolve(name).reference for name in IMAGES}
    names = [*PROGRAMS, *IMAGES, *(["kubernetes"] if node else [])]
    steps: list[step.Step] = [
        *(Engine(shell, installs=False), Python(), target.disk),
        *source.steps_for(*names),
        *([node] if node else []),
    ]
    if node:
        images["node"] = node.reference
    wheels = Wheels(shell, folder, pythons)
    needs = (*(each.name for each in steps), wheels.name)
    extensions = tuple(map(str, target.extensions.variant.extensions))
    made = BundleFile(file, source, images, extensions, wheels, folder, shell, needs, earlier, sign)
    with console.progress():
        step.up([*steps, wheels, made], console, interrupt=shell.interrupt)
    assert made.manifest is not None
    return made.manifest


def join(console: Console, file: Path, earlier: Path | None, difference: Path) -> None:
    """Makes a whole bundle of an earlier one and the difference to it. Raises BadBundle, LowDisk."""
    if earlier is None:
        raise InvalidArgument("--join needs the earlier bundle", hint="add --since EARLIER")
    require_free(file)
    whole = Bundle.of(earlier)
    joined = _Joined(file, whole, Bundle.difference(difference, whole))
    with console.progress():
        step.up([joined], console)
    console.result(f"{file} is made. Next: ./invokew up --bundle {file}")


def inspect(console: Console, file: Path, key: str = "", *, packages: bool = False) -> None:
    """Shows what is in a bundle, and reads all of it; `packages` lists them, in SPDX.

    `key` is the setting `bundle_key`. Raises BadBundle.
    """
    bundle = Bundle.of(file)
    if key:
        require_signed(bundle.archive, replace(bundle.manifest, since="").text(), public_key(key))
    whole = _Whole(bundle, lists_packages=packages)
    with console.progress():
        step.up([whole], console)
    if packages:
        console.document(whole.packages)
        return
    if console.as_json:
        console.document(_document(file, bundle.manifest))
        return
    manifest = bundle.manifest
    console.result(f"{file} is whole: {manifest.version}")
    console.result(f"bundle {manifest.digest[:12]}{_lacks(manifest)}")
    console.result(f"for {manifest.platform}, Python {', '.join(manifest.pythons)}")
    console.result(f"extensions of others: {', '.join(manifest.extensions) or 'none'}")
    console.result()
    rows = [
        (name, kind, f"{size / 10**6:,.1f}", digest[:12]) for name, kind, size, digest in _contents(manifest)
    ]
    console.table(("content", "kind", "MB", "digest"), rows)


def _signing(shell: Shell, signer: Path | None) -> Sign | None:
    """Returns what signs manifests with that key; asks the user for its password, where one is there."""
    if signer is None:
        return None
    asks = f"Password of {signer} (empty where it has none): "
    password = getpass.getpass(asks) if sys.stdin.isatty() else ""

    def sign(manifest: Manifest) -> bytes:
        comment = f"Rayside bundle {manifest.digest}"
        return signature(shell, manifest.text(), signer, password, comment)

    return sign


class _Joined:
    """A whole bundle is made of an earlier one and a difference."""

    name, title, needs = "bundle", "whole bundle", ()

    def __init__(self, file: Path, earlier: Bundle, difference: Bundle) -> None:
        self._file, self._earlier, self._difference, self._is_made = file, earlier, difference, False

    def check(self) -> step.Status:
        return step.ready(str(self._file)) if self._is_made else step.missing("not made yet")

    def apply(self, report: step.Report) -> None:
        report("writing")

        def read(blob: Blob) -> Iterator[bytes]:
            has_it = self._difference if self._difference.archive.has(blob) else self._earlier
            return has_it.read(blob)

        try:
            signed = self._difference.archive.text(SIGNATURE)
            sign = (lambda _: signed) if signed else None
            write(self._file, replace(self._difference.manifest, since=""), read, sign=sign)
        except OSError as error:
            raise unwritable(self._file, error) from None
        self._is_made = True


class _Whole:
    """A bundle is whole."""

    name, title, needs = "bundle", "contents of the bundle", ()

    def __init__(self, bundle: Bundle, *, lists_packages: bool) -> None:
        self._bundle, self._lists_packages, self._is_whole = bundle, lists_packages, False
        self.packages: dict[str, Any] = {}

    def check(self) -> step.Status:
        return step.ready("whole") if self._is_whole else step.missing("not read yet")

    def apply(self, report: step.Report) -> None:
        self._bundle.require_whole(report)
        if self._lists_packages:
            self.packages = sbom(self._bundle, report)
        self._is_whole = True


def _contents(manifest: Manifest) -> list[tuple[str, str, int, str]]:
    """Returns name, kind, bytes and digest of each content; a layer counts where it is met first."""
    rows = [(each.name, "program", each.blob.size, each.blob.digest) for each in manifest.folders]
    seen = set[str]()
    for image in manifest.images:
        layers = [layer.blob for layer in image.layers if layer.blob.digest not in seen]
        seen.update(blob.digest for blob in layers)
        rows.append((image.reference, "image", sum(blob.size for blob in layers), image.config.digest))
    rows += [(name, "wheel", blob.size, blob.digest) for name, blob in sorted(manifest.wheels.items())]
    return [*rows, ("checkout", "files of this repository", manifest.checkout.size, manifest.checkout.digest)]


def _lacks(manifest: Manifest) -> str:
    return f", the difference to {manifest.since[:12]} alone" if manifest.since else ""


def _document(file: Path, manifest: Manifest) -> dict[str, Any]:
    contents = [
        {"name": name, "kind": kind, "bytes": size, "sha256": digest}
        for name, kind, size, digest in _contents(manifest)
    ]
    return {
        "file": str(file),
        "digest": manifest.digest,
        "since": manifest.since or None,
        "version": vars(manifest.version),
        "platform": manifest.platform,
        "pythons": list(manifest.pythons),
        "extensions": list(manifest.extensions),
        "contents": contents,
    }


def _pythons(given: str) -> tuple[str, ...]:
    """Returns the versions that are named, with commas between; default: this Python's."""
    versions = tuple(dict.fromkeys(filter(None, map(str.strip, given.split(","))))) or (this_python(),)
    for version in versions:
        number = tuple(map(int, version.split("."))) if re.fullmatch(r"3\.\d{1,2}", version) else ()
        if not OLDEST_PYTHON <= number <= NEWEST_PYTHON:
            raise InvalidArgument(
                f"python is {version!r}", hint="give versions from 3.10 to 3.14, as in --python 3.11,3.12"
            )
    return versions
