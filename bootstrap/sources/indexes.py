"""Package sources configured for this machine's own tools: pip's indexes, npm's registry, apt's mirror."""

from __future__ import annotations

import ast
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from bootstrap import pip
from rayside.errors import CommandFailed, MissingProgram
from rayside.system.shell import Shell

# pip's options for a build.
_PIP = "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST"
_NPM = "NPM_CONFIG_REGISTRY"
# URL schemes that both debootstrap here and apt in a build support.
_SCHEMES = ("http://", "https://")


def package_indexes(shell: Shell, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns pip's indexes and npm's registry as environment variables, without the tools' own defaults.

    They include the tools' own configuration files, as `pip config` and `npm config` read them.
    """
    try:
        pips = pip.for_pip(shell, sys.executable, environment)
    except CommandFailed:
        pips = pip.configured(environment, "")
    variables = {name: " ".join(pips[name].split()) for name in _PIP if name in pips}
    if registry := environment.get(_NPM) or environment.get(_NPM.lower()):
        variables[_NPM] = registry
    elif shutil.which("npm"):
        # Run outside of any project's folder, which may have its own registry.
        variables |= npm_registry(_output(shell, ["npm", "config", "list"], cwd=Path(os.sep)))
    return variables


def npm_registry(listed: str) -> dict[str, str]:
    """Returns npm's variable from `npm config list`, which prints no defaults: `registry = "https://..."`."""
    lines = (line.partition(" = ") for line in listed.splitlines())
    # npm prints a value that another overrides as a comment.
    return next(({_NPM: str(ast.literal_eval(value))} for key, _, value in lines if key == "registry"), {})


def debian_mirror(shell: Shell, suite: str) -> str:
    """Returns apt's mirror of the Debian `suite`, or else of another release; empty if apt has none.

    A mirror with a password in its URL is left out: the URL would be readable in the image.
    """
    if not shutil.which("apt-get"):
        return ""
    form = "$(CREATED_BY)|$(COMPONENT)|$(LABEL)|$(RELEASE)|$(REPO_URI)"
    targets = ["apt-get", "indextargets", "--format", form]
    # Without the second option apt leaves out repositories whose Release file it has not fetched.
    return apt_mirror(_output(shell, targets) + _output(shell, [*targets, "--no-release-info"]), suite)


def apt_mirror(targets: str, suite: str) -> str:
    """Finds that mirror in apt's output for each index: kind, component, label, release, repository."""
    mirrors: dict[str, str] = {}
    for line in targets.splitlines():
        created_by, component, label, release, address = line.split("|", 4)
        if (created_by, component) != ("Packages", "main") or not address.startswith(_SCHEMES):
            continue
        if urlsplit(address).username:
            continue
        # Before `apt-get update` apt knows no label; no other distribution has a release of that name.
        if release == suite or (label == "Debian" and release.partition("-")[0] == release):
            mirrors.setdefault(release, address.rstrip("/"))
    return mirrors.get(suite) or next(iter(mirrors.values()), "")


def _output(shell: Shell, command: list[str], cwd: Path | None = None) -> str:
    """Returns a tool's output; empty if it fails, which means the tool's defaults."""
    try:
        return shell.run(command, cwd=cwd).out
    except (CommandFailed, MissingProgram):
        return ""
