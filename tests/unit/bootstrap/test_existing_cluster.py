"""Tests the target `cluster` without a Ray: its address, what comes before what, its ports."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bootstrap.given_settings import parse
from bootstrap.settings import Settings
from bootstrap.steps.machine_checks import Ports
from bootstrap.targets import choice
from bootstrap.targets.existing_cluster import Cluster
from rayside.errors import InvalidSetting
from rayside.own_folder import make_own
from rayside.steps.state_folder import StateFolder
from rayside.system.shell import Shell

URL = "http://head.example:8265"


@pytest.mark.parametrize("address", [URL, "https://10.0.0.7", "http://[fd00::1]:8265"])
def test_an_address_alone_says_which_target(tmp_path: Path, address: str) -> None:
    settings = parse({"address": address, "state_folder": tmp_path})
    target = choice.choose(settings, Shell())
    assert (target.instance.target, target.instance.dashboard) == ("cluster", address)
    assert target.brings_example is False


def test_the_target_needs_an_address(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting) as raised:
        choice.choose(Settings(target="cluster", state_folder=tmp_path), Shell())
    assert "--address" in raised.value.hint


def test_a_cluster_keeps_its_address(tmp_path: Path) -> None:
    settings = Settings(address=URL, state_folder=tmp_path)
    identity = choice.choose(settings, Shell()).instance
    make_own(identity.folder)
    identity.record.write_text(identity.document())
    assert choice.choose(replace(settings, address=""), Shell()).instance.address == URL
    with pytest.raises(InvalidSetting, match=f"was made with {URL}"):
        choice.choose(replace(settings, address="http://other:8265"), Shell())


def test_nothing_is_made_before_it_was_looked_at(tmp_path: Path) -> None:
    steps = {step.name: step for step in choice.choose(Settings(address=URL), Shell()).steps()}
    assert isinstance(steps["state-folder"], StateFolder)
    assert "preflight" in steps["state-folder"].needs


@pytest.mark.parametrize(
    ("way", "opened"),
    [
        ({}, {"relay_port", "workspace_port"}),
        ({"workspace": False}, {"relay_port"}),
        ({"ssh": "head"}, {"dashboard_port", "relay_port", "workspace_port"}),
    ],
)
def test_only_ports_to_be_opened_must_be_free(tmp_path: Path, way: dict[str, Any], opened: set[str]) -> None:
    target = choice.choose(Settings(address="http://127.0.0.1:8265", state_folder=tmp_path, **way), Shell())
    assert isinstance(target, Cluster)
    (ports,) = (step for step in target.steps() if isinstance(step, Ports))
    assert ports.ports.keys() == opened
