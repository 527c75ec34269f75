"""Does `mirror`: fills a private registry with a bundle, of which `up --mirror` makes clusters."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bootstrap import step
from bootstrap.bundle.opened import Bundle, require_complete
from bootstrap.bundle.signature import public_key, require_signed
from bootstrap.console import Console
from bootstrap.lock import alone
from bootstrap.registry import helm_values
from bootstrap.registry.mirror import mirror_of
from bootstrap.registry.mirrored import REPOSITORY, Sent, names, send
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
    """Fills the registry of that name with a bundle's file, or with one that is made of what is asked for.

    `values` is a folder for values of Helm. Raises InvalidArgument, BadBundle, RegistryRefused,
    RegistryUnreachable, and what making one raises.
    """
    registry = mirror_of(replace(settings, mirror=name))
    if values:
        helm_values.require_free(values)
    # A bundle takes minutes: whether it can go there is asked before.
    registry.require(registry.address.repository(REPOSITORY))
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
            if settings.bundle_key:
                require_signed(opened.archive, opened.manifest.text(), public_key(settings.bundle_key))
            sending = _Sending(opened, registry)
            with console.progress():
                step.up([sending], console)
        finally:
            draft.unlink(missing_ok=True)
    written = []
    if values:
        has_login = registry.login is not None
        written = helm_values.write(values, opened.manifest, registry.address, has_login=has_login)
    assert sending.sent is not None
    _show(console, registry, opened, sending.sent, written)


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


def _show(console: Console, registry: Registry, opened: Bundle, sent: Sent, values: Sequence[Path]) -> None:
    manifest, address = opened.manifest, registry.address
    if console.as_json:
        console.document(
            {
                "registry": str(address),
                "digest": manifest.digest,
                "platform": manifest.platform,
                "version": vars(manifest.version),
                "images": [{"name": name, "digest": digest} for name, digest in names(manifest, address)],
                "bytes": {"sent": sent.given, "there": sent.had},
                **({"helm_values": [*map(str, values)]} if values else {}),
            }
        )
        return
    console.result(
        f"{address} has the bundle {manifest.digest[:12]} for {manifest.platform}: "
        f"{sent.given / 10**6:,.0f} MB were sent, {sent.had / 10**6:,.0f} MB were there"
    )
    console.table(("image", "digest"), [(name, digest[:19]) for name, digest in names(manifest, address)])
    console.result()
    for file in values:
        chart = f"kuberay/{file.stem} --version {KUBERAY_VERSION}"
        console.result(f"helm install {file.stem} {chart} --values {shlex.quote(str(file))}")
    console.result(f"Next, of this same checkout: ./invokew up --mirror {address}")
