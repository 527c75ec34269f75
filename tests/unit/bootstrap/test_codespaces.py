"""Tests that a codespace is known by its environment, and its ports by the names that people click."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bootstrap import codespaces
from bootstrap.codespaces import Codespace
from bootstrap.instance import configured
from bootstrap.settings import Settings
from rayside.errors import UnsafeFolder
from rayside.steps.state_folder import StateFolder
from tests.targets import kind_target, local_target

HERE = {
    "CODESPACES": "true",
    "CODESPACE_NAME": "fuzzy-space-guide-97x",
    "GITHUB_CODESPACES_PORT_FORWARDING_DOMAIN": "ports.test",
}


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in HERE.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in HERE:
        monkeypatch.delenv(name, raising=False)


def test_it_is_known_by_its_environment_alone() -> None:
    assert Codespace.here(HERE) == Codespace("fuzzy-space-guide-97x", "ports.test")
    assert Codespace.here({**HERE, "GITHUB_CODESPACES_PORT_FORWARDING_DOMAIN": ""}) == Codespace(
        "fuzzy-space-guide-97x", "app.github.dev"
    )
    for name in ("CODESPACES", "CODESPACE_NAME"):
        assert Codespace.here({key: value for key, value in HERE.items() if key != name}) is None
    assert Codespace.here({}) is None


def test_web_addresses_are_the_forwarded_ones_and_all_else_stays(inside: None) -> None:
    assert codespaces.addresses(
        {
            "workspace": "http://127.0.0.1:8443/?folder=/tmp/a%20b#x",
            "dashboard": "http://127.0.0.1:8265",
            "relay": "tcp://127.0.0.1:5678",
            "none": None,
            "elsewhere": "http://10.0.0.7:8265",
        }
    ) == {
        "workspace": "https://fuzzy-space-guide-97x-8443.ports.test/?folder=/tmp/a%20b#x",
        "dashboard": "https://fuzzy-space-guide-97x-8265.ports.test",
        "relay": "tcp://127.0.0.1:5678",
        "none": None,
        "elsewhere": "http://10.0.0.7:8265",
    }


def test_outside_of_one_nothing_changes(outside: None) -> None:
    assert codespaces.clickable("http://127.0.0.1:8265") == "http://127.0.0.1:8265"
    assert codespaces.trusted_origins(8443) == ()
    assert kind_target().memory.too_small == ""
    assert local_target().memory.too_small == ""


def test_a_codespace_that_is_too_small_is_told_what_to_choose(inside: None) -> None:
    kind = kind_target(Settings(min_memory_gib=1.5, min_disk_gib=2)).memory.too_small
    assert "choose a larger machine type" in kind
    assert kind.endswith("./invokew up --target local, which needs 1.5 GiB of memory and 2 GiB of disk")
    local = local_target().memory.too_small
    assert "choose a larger machine type" in local
    assert "--target local" not in local


@pytest.mark.skipif(os.getuid() != 0, reason="makes what only root, as Docker is, can make")
def test_a_folder_that_docker_made_in_place_of_ours_is_named_with_its_cure(tmp_path: Path) -> None:
    instance = configured(Settings(state_folder=tmp_path), "kind")
    folder = tmp_path / "rayside"
    folder.mkdir(mode=0o755)
    with pytest.raises(UnsafeFolder) as refused:
        StateFolder(instance).check()
    assert "sudo" not in refused.value.hint
    (folder / "node").mkdir()
    with pytest.raises(UnsafeFolder) as refused:
        StateFolder(instance).check()
    assert f"sudo rm -r {folder}" in refused.value.hint
    assert refused.value.hint.endswith("./invokew up")
