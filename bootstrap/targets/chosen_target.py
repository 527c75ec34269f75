"""Is what every target has in common: what `choice` makes it with."""

from __future__ import annotations

from dataclasses import dataclass

from bootstrap.instance import Instance
from bootstrap.settings import Settings
from bootstrap.shell import Shell
from bootstrap.sources.extensions import Extensions, variant


@dataclass(frozen=True)
class ChosenTarget:
    """One instance, where the settings have it.

    Attributes:
        reason: why it is this target, for people.
        asks: whether a gallery may be asked for the workspace's extensions.
        prepares: whether that is for a cluster to come.
    """

    settings: Settings
    shell: Shell
    instance: Instance
    reason: str
    asks: bool = False
    prepares: bool = False

    def __post_init__(self) -> None:
        """Refuses a cluster whose folder may be another user's. Raises UnsafeFolder."""
        _ = self.instance.folder

    def extensions_for(self, platform: str = "") -> Extensions:
        """Returns the step that brings the workspace's extensions.

        `platform`: VS Code's name for it, as in linux-x64; default: that of the workspace's image.
        """
        record = None if self.prepares else self.instance.folder / "extensions.json"
        chosen = variant(self.settings, ask=self.asks, record=record, platform=platform)
        return Extensions(self.settings, chosen, record)
