"""Tests that a command imports the modules of the cluster that is there, and no others."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bootstrap.instance import configured
from bootstrap.settings import ROOT, Settings
from rayside.private_file import write_private
from tests.patience import PATIENCE

# Begins Invoke as `./invokew` does, and prints at its end which modules of ours have been imported.
BEGIN = """
import atexit, runpy, sys
of_ours = lambda: [name for name in sys.modules if name.partition(".")[0] in ("bootstrap", "rayside")]
atexit.register(lambda: print("modules", *of_ours()))
runpy.run_path("bootstrap/entry.py", run_name="__main__")
"""
# Of these rooms, and modules, a Ray on this machine needs nothing.
ELSEWHERE = ("kube", "bundle", "registry", "delivery", "reach", "relay.server", "relay_actor", "client")
KINDS = (
    *("sources.upstream", "sources.built_here", "steps.kind_cluster", "targets.kind"),
    "targets.on_kubernetes",
)


def imported(folder: Path, *arguments: str) -> set[str]:
    """Returns the modules that a verb has imported, without the name of their product."""
    environment = {
        **os.environ,
        "INVOKE_RAYSIDE_STATE_FOLDER": str(folder),
        "DOCKER_HOST": f"unix://{folder}/none",
    }
    command = [sys.executable, "-c", BEGIN, *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    *_, last = done.stdout.splitlines() or [""]
    word, *names = last.split()
    assert word == "modules", done.stdout + done.stderr
    return {name.partition(".")[2] for name in names}


def recorded(tmp_path: Path, target: str, source: str) -> Path:
    """Returns a state folder with the record of a cluster."""
    folder = tmp_path / "state"
    identity = replace(configured(Settings(state_folder=folder, target=target), target), source=source)
    for each in (folder, identity.location):
        each.mkdir(mode=0o700)
    write_private(identity.record, identity.document())
    return folder


def of(names: set[str], rooms: Sequence[str]) -> list[str]:
    return sorted(name for name in names if any(f"{name}.".startswith(f"{room}.") for room in rooms))


def test_status_of_local_imports_nothing_of_other_targets(tmp_path: Path) -> None:
    names = imported(recorded(tmp_path, "local", "upstream"), "status")
    assert "targets.local" in names
    assert of(names, [*ELSEWHERE, *KINDS]) == []
    assert len(names) < 95


@pytest.mark.parametrize("source", ["upstream", "packages"])
def test_status_of_kind_imports_the_source_that_it_has(tmp_path: Path, source: str) -> None:
    names = imported(recorded(tmp_path, "kind", source), "status")
    assert "steps.kind_cluster" in names
    other = {"upstream": "packages", "packages": "upstream"}[source]
    unneeded = ("bundle", "relay.server", "relay_actor", "client", "targets.local", f"sources.{other}")
    assert of(names, unneeded) == []
    assert len(names) < 135


def test_help_imports_no_verb(tmp_path: Path) -> None:
    names = imported(tmp_path, "--list")
    assert of(names, ["verbs", "targets", "steps", "ray"]) == []
