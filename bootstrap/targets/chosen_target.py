"""Is what every target has in common: what `choice` makes it with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from bootstrap.instance import Instance
from bootstrap.settings import BUNDLED, Settings
from bootstrap.shell import Shell
from bootstrap.sources.bundle_origin import RECORD
from bootstrap.sources.bundled import bundled
from bootstrap.sources.chosen import chosen
from bootstrap.sources.extensions import Extensions, variant
from bootstrap.sources.source import Source


@dataclass(frozen=True)
class ChosenTarget:
    """One instance, where the settings have it.

    Attributes:
        reason: why it is this target, for people.
        asks: whether a gallery may be asked for the workspace's extensions.
        prepares: whether that is for a cluster to come.
        architecture: of the machine that the cluster is to come to; default: this one's.
    """

    settings: Settings
    shell: Shell
    instance: Instance
    reason: str
    asks: bool = False
    prepares: bool = False
    architecture: str = ""

    def __post_init__(self) -> None:
        """Refuses a cluster whose folder may be another user's. Raises UnsafeFolder."""
        _ = self.instance.folder

    @property
    def wheels(self) -> Path | None:
        """Returns the folder with the packages for Python that it needs; None where they are the index's."""
        return None

    @property
    def bundle_steps(self) -> tuple[str, ...]:
        """Returns the step that may refuse a bundle, where everything comes out of one."""
        return ("bundle",) if self.instance.source in BUNDLED else ()

    def origin_with(self, extensions: Callable[[], Extensions], *, nodes_pull: bool) -> Source:
        """Returns the source of images and tools; `extensions` gives those of the workspace that is built.

        What was bundled has its own, and no gallery is asked. `nodes_pull`: nodes have images from a mirror.
        """
        if self.instance.source in BUNDLED:
            record = self.instance.folder / RECORD
            return bundled(
                *(replace(self.settings, source=self.instance.source), record, self.shell),
                is_for_later=self.prepares,
                nodes_pull=nodes_pull,
            )
        return chosen(self.instance.source, self.settings, extensions(), self.shell, self.architecture)

    def extensions_for(self, platform: str = "") -> Extensions:
        """Returns the step that brings the workspace's extensions.

        `platform`: VS Code's name for it, as in linux-x64; default: that of the workspace's image.
        """
        record = None if self.prepares else self.instance.folder / "extensions.json"
        chosen = variant(self.settings, ask=self.asks, record=record, platform=platform)
        return Extensions(self.settings, chosen, record)
