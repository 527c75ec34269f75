"""Choice of the source for a cluster's images and tools."""

from __future__ import annotations

from dataclasses import replace

from bootstrap.settings import Settings
from bootstrap.sources.extensions import Extensions
from bootstrap.sources.source import Source
from rayside.system.shell import Shell


def chosen(
    name: str, settings: Settings, extensions: Extensions, shell: Shell, architecture: str = ""
) -> Source:
    """Returns the source with that name of `settings.SOURCES`, other than auto.

    `architecture`: programs and images are for a Linux of it; default: for this machine, and its engine.
    """
    if name == "upstream":
        from bootstrap.sources.releases import Releases
        from bootstrap.sources.upstream import upstream

        here = Releases(settings, shell)
        other = replace(here, system="linux", architecture=architecture, images=architecture)
        return upstream(other if architecture else here, extensions, shell)
    from bootstrap.sources.built_here import packages

    return packages(settings, extensions, shell, architecture)
