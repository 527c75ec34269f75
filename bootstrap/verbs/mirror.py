"""Verb `mirror`: uploads bundles to a private registry, for `up --mirror`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from bootstrap.bundle.manifest import Manifest
from bootstrap.bundle.opened import Bundle, this_platform
from bootstrap.bundle.version import this_version
from bootstrap.registry import helm_values
from bootstrap.registry.login import login_for
from bootstrap.registry.mirrored import Sent, names, require, require_none_lost, send
from bootstrap.registry.oras import Oras
from bootstrap.settings import KUBERAY_VERSION, Settings
from bootstrap.sources.registry_client import RegistryClient
from bootstrap.verbs import bundle
from rayside.console import Console
from rayside.errors import InvalidArgument
from rayside.steps import graph, step
from rayside.system.lock import alone
from rayside.system.shell import Shell


def fill(
    settings: Settings,
    console: Console,
    name: str,
    file: Path | None,
    asked: bundle.Asked,
    values: Path | None = None,
) -> None:
    """Uploads a bundle's file to the registry of that name, or newly made bundles as requested.

    `asked.platform` may be a comma-separated list: one bundle is made for each. `values` is a folder for Helm
    values.
    """
    if file and asked.platform:
        raise InvalidArgument(
            f"--platform is for what is made here, and {file} is for one already", hint="leave it out"
        )
    if file is None:
        bundle.require_linux()
        if settings.bundle_key:
            raise InvalidArgument(
                "bundle_key is set, and a bundle that is made here is not signed",
                hint=f"./invokew bundle FILE --sign KEY, then ./invokew mirror {name} --bundle FILE",
            )
    platforms = asked.platform.split(",")
    for platform in platforms if asked.platform else []:
        bundle.architecture_of(platform)
        if platforms.count(platform) > 1:
            raise InvalidArgument(f"--platform names {platform} twice", hint="name each once")
    if values and len(platforms) > 1:
        raise InvalidArgument(
            "--helm-values goes with one platform: an image's name is for one",
            hint="name one with --platform",
        )
    if values:
        helm_values.require_free(values)
    opened = Bundle.of(file) if file else None
    if opened:
        bundle.require_signed_by(opened, settings.bundle_key)
    registry = registry_client(replace(settings, mirror=name), Shell(), console, opened).mirror
    # Before a bundle is made, which takes minutes.
    console.event(f"asking {registry.address} whether it takes a bundle")
    require(registry)
    for platform in platforms if file is None else []:
        pythons = bundle.pythons_of(asked.python)
        require_none_lost(registry, this_version(), platform or this_platform(), pythons, is_signed=False)
    documents = []
    for platform in platforms:
        of_platform = replace(asked, platform=platform)
        manifest, sent = _sent(settings, console, registry, opened, of_platform)
        written = []
        if values:
            has_login = login_for(registry.address.host) is not None
            written = helm_values.write(values, manifest, registry.address, has_login=has_login)
        if console.as_json:
            if len(platforms) > 1:  # The one document is for all, and a later upload may fail.
                console.event(f"{registry.address} has the bundle for {platform}")
            documents.append(_document(registry, manifest, sent, written))
        _show(console, registry, manifest, sent, written)
    if console.as_json:
        console.document(documents[0] if len(documents) == 1 else {"bundles": documents})
    console.result(f"Next, of this same checkout: ./invokew up --mirror {registry.address}")


def registry_client(
    settings: Settings, shell: Shell, console: Console, opened: Bundle | None = None
) -> RegistryClient:
    """Returns the step of the registry client, which is installed if missing, with progress."""
    client = RegistryClient(settings, shell, opened)
    if client.check().condition is step.Condition.MISSING:
        with console.progress():
            graph.up([client], console, interrupt=shell.interrupt)
    return client


def _sent(
    settings: Settings, console: Console, registry: Oras, opened: Bundle | None, asked: bundle.Asked
) -> tuple[Manifest, Sent]:
    draft = settings.cache_folder / "bundle-to-mirror"
    with alone(
        draft.with_name(f"{draft.name}.lock"), lambda: console.event("another mirror is filled: waiting")
    ):
        try:
            if opened is None:
                # Its contents come from the network, not from the mirror itself.
                source = "auto" if settings.source == "mirror" else settings.source
                bundle.written(replace(settings, source=source, mirror=""), console, draft, asked)
                whole = Bundle.of(draft)
            else:
                whole, has = opened, opened.manifest
                is_signed = opened.signature is not None
                require_none_lost(registry, has.version, has.platform, has.pythons, is_signed=is_signed)
            with console.progress(), console.work("mirror", "registry"):
                return whole.manifest, send(registry, whole, partial(console.note, "mirror"))
        finally:
            draft.unlink(missing_ok=True)


def _document(registry: Oras, manifest: Manifest, sent: Sent, values: Sequence[Path]) -> dict[str, Any]:
    listed = names(manifest, registry.address)
    return {
        "registry": str(registry.address),
        "digest": manifest.digest,
        "platform": manifest.platform,
        "version": vars(manifest.version),
        "images": [{"name": name, "digest": digest} for name, digest in listed],
        "bytes": {"sent": sent.given, "there": sent.had},
        **({"helm_values": [*map(str, values)]} if values else {}),
    }


def _show(console: Console, registry: Oras, manifest: Manifest, sent: Sent, values: Sequence[Path]) -> None:
    address = registry.address
    console.result(
        f"{address} has the bundle {manifest.digest[:12]} for {manifest.platform}: "
        f"{sent.given / 10**6:,.0f} MB were sent, {sent.had / 10**6:,.0f} MB were there"
    )
    console.table(("image", "digest"), [(name, digest[:19]) for name, digest in names(manifest, address)])
    console.result()
    for file in values:
        chart = f"kuberay/{file.stem} --version {KUBERAY_VERSION}"
        console.result(f"helm install {file.stem} {chart} --values {shlex.quote(str(file))}")
