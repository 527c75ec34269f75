"""Tests that what docs/verbs.md, and `rayside completion`, say to type makes the Tab key complete."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from bootstrap.settings import ROOT
from tests.docs_commands import page
from tests.integration.screen import Screen

pytestmark = pytest.mark.gate

INVOKEW, ZSH, FISH, INVOKE = (list(block.lines) for block in page("docs/verbs.md")[0][-4:])
RAYSIDE = {
    "bash": ['eval "$(rayside completion bash)"'],
    "zsh": ["autoload -Uz compinit; compinit -u", 'eval "$(rayside completion zsh)"'],
    "fish": ["rayside completion fish | source"],
}
STARTS = {
    "bash": ["--norc", "--noprofile", "-i"],
    "zsh": ["-f", "-i"],
    "fish": ["--no-config", "-i"],
}


def started(shell: str, lines: Sequence[str], path: str = "") -> Screen:
    """Returns a terminal with a shell that has run these lines; `path` is a folder of programs besides."""
    installed = shutil.which(shell)
    if installed is None:
        why = f"{shell} is not installed; enable it with ./invokew doctor --fix --tests"
        pytest.skip(why)
    # zsh asks about folders that others may write to, as root's are in some images.
    environment = {**os.environ, "PS1": "$ ", "ZSH_DISABLE_COMPFIX": "true"}
    environment["PATH"] = os.pathsep.join(filter(None, (path, os.environ["PATH"])))
    terminal = Screen(installed, *STARTS[shell], env=environment)
    for line in [*lines, "echo read''y"]:
        terminal.type(f"{line}\r")
    terminal.until("ready")
    return terminal


@pytest.mark.parametrize(
    ("shell", "lines", "program"),
    [
        ("bash", INVOKEW, "./invokew"),
        ("bash", INVOKE, "invoke"),
        ("zsh", [*ZSH, *INVOKEW], "./invokew"),
        ("fish", FISH, "./invokew"),
    ],
    ids=["bash", "bash, invoke", "zsh", "fish"],
)
def test_tab_completes_verbs_and_options(shell: str, lines: list[str], program: str) -> None:
    with closing(started(shell, lines)) as terminal:
        terminal.type(f"{program} doc\t")
        terminal.until("doctor")
        terminal.type(f"\x15{program} up --targ\t")
        terminal.until("--target")
        terminal.type("\x15")


@pytest.mark.parametrize("shell", RAYSIDE)
def test_tab_completes_the_commands_of_the_package(shell: str, tmp_path: Path) -> None:
    program = tmp_path / "rayside"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m rayside.cli "$@"\n')
    program.chmod(0o755)
    with closing(started(shell, RAYSIDE[shell], str(tmp_path))) as terminal:
        terminal.type("rayside disc\t")
        terminal.until("disconnect")
        terminal.type("\x15rayside connect --addr\t")
        terminal.until("--address")
        terminal.type("\x15")
