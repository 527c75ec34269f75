"""Verb `bundle`: writes a bundle file for `up --bundle`, or shows a bundle's contents."""

from __future__ import annotations

import getpass
import re
import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bootstrap import docker_engine
from bootstrap.bundle.manifest import IMAGES, PROGRAMS, Manifest
from bootstrap.bundle.opened import PLATFORMS, Bundle, this_platform, this_python
from bootstrap.bundle.signature import public_key, require_signature, require_signer, signature
from bootstrap.delivery.baked import baked
from bootstrap.settings import NEWEST_PYTHON, OLDEST_PYTHON, Settings
from bootstrap.sources.bundle_file import BundleFile, Wheels, require_free
from bootstrap.steps.emulation import Emulation, absent
from bootstrap.steps.engine import Engine
from bootstrap.steps.machine_checks import Python
from bootstrap.targets import choice, preparation
from rayside.console import Console
from rayside.errors import InvalidArgument
from rayside.steps import graph, step
from rayside.system.shell import Shell

Sign = Callable[[Manifest], bytes]


@dataclass(frozen=True)
class Asked:
    """Requested kind of bundle.

    Attributes:
        platform: one of `PLATFORMS`; default: this machine's.
        python: comma-separated versions; default: this Python's.
        signer: file of a secret key; default: unsigned.
    """

    platform: str = ""
    python: str = ""
    signer: Path | None = None


def make(settings: Settings, console: Console, file: Path, asked: Asked, key: str = "") -> None:
    """Writes a bundle, and prints its usage; a public `key` is refused. Raises InvalidArgument, BadBundle.

    The setting `bundle_key` is ignored: it is for existing bundles.
    """
    if key:
        raise InvalidArgument(
            "--bundle-key is for a bundle that is there, and this makes one",
            hint="--sign SECRET_KEY signs it; or leave --bundle-key out",
        )
    began = time.monotonic()
    manifest = written(settings, console, file, asked)
    size, quoted = file.stat().st_size / 10**6, shlex.quote(file.name)
    console.result(f"{file} is made: {size:,.0f} MB, {time.monotonic() - began:.0f} s")
    console.result("Where there is no network, take this checkout out of it, and use it:")
    checkout = manifest.checkout
    console.result(f"    tar -xOf {quoted} {checkout.name} > rayside.tar")
    console.result(f"    echo '{checkout.digest}  rayside.tar' | sha256sum --check && tar -xf rayside.tar")
    console.result(f"    rayside/invokew up --bundle {quoted}")


def written(settings: Settings, console: Console, file: Path, asked: Asked) -> Manifest:
    """Writes a bundle with everything for the target kind. Raises InvalidArgument, BadBundle."""
    platform = asked.platform
    require_linux()
    architecture = architecture_of(platform) if platform else ""
    require_free(file)
    pythons = pythons_of(asked.python)
    shell = Shell()
    sign = _signing(shell, asked.signer)
    choice.wait_for_engine(settings, console.event)
    if not architecture and not _is_engine_like_this_machine():
        if not platform:
            raise InvalidArgument(
                f"the Docker engine makes images for another machine than this, {this_platform()}",
                hint=f"say what the bundle is for, as in --platform {this_platform()}",
            )
        # Images are built with emulation there, or this machine's programs are compiled for it.
        architecture = platform.removeprefix("linux/")
    target = preparation.to_bundle(settings, shell, architecture)
    emulation = _emulation(target.origin.name, architecture)
    source, folder = target.origin, settings.cache_folder
    # Only Kubernetes' own images are baked into the node: others are in the bundle once, for all uses.
    node = baked(shell, folder, source, architecture=architecture)
    images = {name: source.resolve(name).reference for name in IMAGES}
    names = [*PROGRAMS, *IMAGES, *(["kubernetes"] if node else [])]
    engine = Engine(shell, installs=False, needs=tuple(each.name for each in emulation))
    steps: list[step.Step] = [
        *emulation,
        *(engine, Python(), target.disk),
        *source.steps_for(*names),
        *([node] if node else []),
    ]
    if node:
        images["node"] = node.reference
    wheels = Wheels(shell, folder, pythons, architecture)
    needs = (*(each.name for each in steps), wheels.name)
    extensions = tuple(map(str, target.extensions.variant.extensions))
    made = BundleFile(file, source, images, extensions, wheels, folder, shell, needs, sign)
    with console.progress():
        graph.up([*steps, wheels, made], console, interrupt=shell.interrupt)
    assert made.manifest is not None
    return made.manifest


def require_linux() -> None:
    if not this_platform().startswith("linux/"):
        raise InvalidArgument(
            f"a bundle is made on Linux, and this is {this_platform()}", hint="make it on a Linux machine"
        )


def _is_engine_like_this_machine() -> bool:
    """Returns whether the engine builds images for this machine's platform; also True without an engine."""
    if not docker_engine.answers():
        return True
    with docker_engine.connected() as client:
        return f"linux/{docker_engine.architecture(client)}" == this_platform()


def _emulation(source: str, architecture: str) -> list[Emulation]:
    if not architecture or f"linux/{architecture}" == this_platform():
        return []
    # Source `packages` unpacks Debian here. A remote engine's emulation is only known from its builds.
    if source != "packages" and not docker_engine.is_of_this_machine():
        return []
    emulation = Emulation(architecture)
    if emulation.check().condition is not step.Condition.READY:
        raise absent(architecture)
    return [emulation]


def architecture_of(platform: str) -> str:
    """Returns the architecture of one of `PLATFORMS`, as images name both; empty for this machine's."""
    if platform == this_platform():
        return ""
    if platform not in PLATFORMS:
        raise InvalidArgument(
            f"--platform is {platform!r}, and a bundle is for {' or '.join(PLATFORMS)}",
            hint=f"--platform {this_platform()} is this machine's",
        )
    return platform.removeprefix("linux/")


def inspect(console: Console, file: Path, key: str = "") -> None:
    """Shows a bundle's contents, and verifies all; `key` is the setting `bundle_key`. Raises BadBundle."""
    bundle = Bundle.of(file)
    require_signed_by(bundle, key)
    with console.progress(), console.work("bundle", "contents of the bundle"):
        bundle.require_whole(partial(console.note, "bundle"))
    if console.as_json:
        console.document(_document(file, bundle.manifest))
    manifest = bundle.manifest
    console.result(f"{file} is whole: {manifest.version}")
    console.result(f"bundle {manifest.digest[:12]}")
    console.result(f"for {manifest.platform}, Python {', '.join(manifest.pythons)}")
    console.result(f"extensions of others: {', '.join(manifest.extensions) or 'none'}")
    console.result()
    rows = [
        (name, kind, f"{size / 10**6:,.1f}", digest[:12]) for name, kind, size, digest in _contents(manifest)
    ]
    console.table(("content", "kind", "MB", "digest"), rows)


def require_signed_by(bundle: Bundle, key: str) -> None:
    if key:
        require_signature(str(bundle.archive.file), bundle.signature, bundle.manifest.text(), public_key(key))


def _signing(shell: Shell, signer: Path | None) -> Sign | None:
    """Returns a function that signs manifests with that key; prompts for its password on a terminal.

    It is tried at once, as a bundle takes minutes. Raises InvalidArgument, MissingProgram, CommandFailed.
    """
    if signer is None:
        return None
    require_signer(signer)
    asks = f"Password of {signer} (empty where it has none): "
    password = getpass.getpass(asks) if sys.stdin.isatty() else ""

    signature(shell, b"Rayside tries a key\n", signer, password, "no bundle")

    def sign(manifest: Manifest) -> bytes:
        comment = f"Rayside bundle {manifest.digest}"
        return signature(shell, manifest.text(), signer, password, comment)

    return sign


def _contents(manifest: Manifest) -> list[tuple[str, str, int, str]]:
    """Returns name, kind, bytes and digest of each content; a shared layer counts in the first image."""
    rows = [(each.name, "program", each.blob.size, each.blob.digest) for each in manifest.folders]
    seen = set[str]()
    for image in manifest.images:
        layers = [layer.blob for layer in image.layers if layer.blob.digest not in seen]
        seen.update(blob.digest for blob in layers)
        rows.append((image.reference, "image", sum(blob.size for blob in layers), image.config.digest))
    rows += [(name, "wheel", blob.size, blob.digest) for name, blob in sorted(manifest.wheels.items())]
    return [*rows, ("checkout", "files of this repository", manifest.checkout.size, manifest.checkout.digest)]


def _document(file: Path, manifest: Manifest) -> dict[str, Any]:
    contents = [
        {"name": name, "kind": kind, "bytes": size, "sha256": digest}
        for name, kind, size, digest in _contents(manifest)
    ]
    return {
        "file": str(file),
        "digest": manifest.digest,
        "version": vars(manifest.version),
        "platform": manifest.platform,
        "pythons": list(manifest.pythons),
        "extensions": list(manifest.extensions),
        "contents": contents,
    }


def pythons_of(given: str) -> tuple[str, ...]:
    """Returns the comma-separated versions; default: this Python's."""
    versions = tuple(dict.fromkeys(filter(None, map(str.strip, given.split(","))))) or (this_python(),)
    for version in versions:
        number = tuple(map(int, version.split("."))) if re.fullmatch(r"3\.\d{1,2}", version) else ()
        if not OLDEST_PYTHON <= number <= NEWEST_PYTHON:
            raise InvalidArgument(
                f"python is {version!r}", hint="give versions from 3.10 to 3.14, as in --python 3.11,3.12"
            )
    return versions
