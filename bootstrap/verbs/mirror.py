"""Does `mirror`: fills a private registry with a bundle, of which `up --mirror` makes clusters."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bootstrap import step
from bootstrap.bundle.archive import SIGNATURE
from bootstrap.bundle.manifest import Manifest
from bootstrap.bundle.opened import Bundle, require_complete, this_platform
from bootstrap.bundle.version import this_version
from bootstrap.console import Console
from bootstrap.errors import InvalidArgument
from bootstrap.lock import alone
from bootstrap.registry import helm_values
from bootstrap.registry.mirror import mirror_of
from bootstrap.registry.mirrored import Sent, names, require, require_none_lost, send
from bootstrap.registry.registry import Registry
from bootstrap.settings import KUBERAY_VERSION, Settings
from bootstrap.verbs import bundle


def fill(
    settings: Settings,
    console: Console,
    name: str,
    file: Path | None,
    asked: bundle.Asked,
    values: Path | None = None,
) -> None:
    """Fills the registry of that name with a bundle's file, or with those that are made of what is asked for.

    `asked.platform` may be several, with commas between: one bundle is made for each. `values` is a folder
    for values of Helm. Raises InvalidArgument, BadBundle, RegistryRefused, RegistryUnreachable, and what
    making one raises.
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
    registry = mirror_of(replace(settings, mirror=name))
    if values:
        helm_values.require_free(values)
    # A bundle takes minutes: whether it can go there is asked before.
    require(registry)
    for platform in platforms if file is None else []:
        pythons = bundle.pythons_of(asked.python)
        require_none_lost(registry, this_version(), platform or this_platform(), pythons, is_signed=False)
    documents = []
    for platform in platforms:
        of_platform = replace(asked, platform=platform)
        opened, sent = _sent(settings, console, registry, file, of_platform)
        written = []
        if values:
            has_login = registry.login is not None
            written = helm_values.write(values, opened.manifest, registry.address, has_login=has_login)
        if console.as_json:
            if len(platforms) > 1:  # The one document is for all; a later one may fail.
                console.event(f"{registry.address} has the bundle for {platform}")
            documents.append(_document(registry, opened.manifest, sent, written))
        else:
            _show(console, registry, opened.manifest, sent, written)
    if console.as_json:
        console.document(documents[0] if len(documents) == 1 else {"bundles": documents})
    else:
        console.result(f"Next, of this same checkout: ./invokew up --mirror {registry.address}")


def _sent(
    settings: Settings, console: Console, registry: Registry, file: Path | None, asked: bundle.Asked
) -> tuple[Bundle, Sent]:
    """Sends one bundle, and makes it before where there is no file of it."""
    draft = settings.cache_folder / "bundle-to-mirror"
    with alone(
        draft.with_name(f"{draft.name}.lock"), lambda: console.event("another mirror is filled: waiting")
    ):
        if file is None:
            # What it is made of comes from the network, not from the mirror itself.
            source = "auto" if settings.source == "mirror" else settings.source
            bundle.written(replace(settings, source=source, mirror=""), console, draft, asked)
        try:
            opened = Bundle.of(file or draft)
            require_complete(opened.manifest, opened.archive.file)
            bundle.require_signed_by(opened, settings.bundle_key)
            if file:
                has = opened.manifest
                is_signed = opened.archive.text(SIGNATURE) is not None
                require_none_lost(registry, has.version, has.platform, has.pythons, is_signed=is_signed)
            sending = _Sending(opened, registry)
            with console.progress():
                step.up([sending], console)
        finally:
            draft.unlink(missing_ok=True)
    assert sending.sent is not None
    return opened, sending.sent


class _Sending:
    """A registry has all of a bundle."""

    name, title, needs = "mirror", "registry", ()

    def __init__(self, opened: Bundle, registry: Registry) -> None:
        self._bundle, self._registry = opened, registry
        self.sent: Sent | None = None

    def check(self) -> step.Status:
        return step.ready(str(self._registry.address)) if self.sent else step.missing("not filled yet")

    def apply(self, report: step.Report) -> None:
        self.sent = send(replace(self._registry, report=report), self._bundle, report)


def _document(registry: Registry, manifest: Manifest, sent: Sent, values: Sequence[Path]) -> dict[str, Any]:
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


def _show(
    console: Console, registry: Registry, manifest: Manifest, sent: Sent, values: Sequence[Path]
) -> None:
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
