"""Tests that what docs/completion.md says to type makes the Tab key complete, in the shells themselves."""

from __future__ import annotations

import os
import shutil
from contextlib import closing

import pytest

from tests.docs_commands import page
from tests.integration.screen import Screen

pytestmark = pytest.mark.gate

BLOCKS, _ = page("docs/completion.md")
INVOKEW, ZSH, FISH, INVOKE = (list(block.lines) for block in BLOCKS)
STARTS = {
    "bash": ["--norc", "--noprofile", "-i"],
    "zsh": ["-f", "-i"],
    "fish": ["--no-config", "-i"],
}


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
    installed = shutil.which(shell)
    if installed is None:
        why = f"{shell} is not installed; enable it with ./invokew doctor --fix --tests"
        pytest.skip(why)
    # zsh asks about folders that others may write to, as root's are in some images.
    environment = {**os.environ, "PS1": "$ ", "ZSH_DISABLE_COMPFIX": "true"}
    with closing(Screen(installed, *STARTS[shell], env=environment)) as terminal:
        for line in [*lines, "echo read''y"]:
            terminal.type(f"{line}\r")
        terminal.until("ready")
        terminal.type(f"{program} doc\t")
        terminal.until("doctor")
        terminal.type(f"\x15{program} up --targ\t")
        terminal.until("--target")
        terminal.type("\x15")
