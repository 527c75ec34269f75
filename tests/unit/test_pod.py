"""Tests the target `pod`: what the workspace's image writes as its record, and what it does not do."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bootstrap.errors import NotRunning, OtherTarget, UnknownTarget
from bootstrap.settings import POD, ROOT, Settings, parse
from bootstrap.shell import Shell
from bootstrap.targets import choice
from bootstrap.targets.pod import Pod, PodsRay


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Returns those of a workspace that has the record of the image, and the token."""
    folder = tmp_path / "rayside"
    folder.mkdir(mode=0o700)
    shutil.copy(ROOT / "image" / "workspace" / "instance.json", folder)
    (folder / "token").write_text("secret\n")
    return Settings(state_folder=tmp_path)


def test_the_record_of_the_image_leads_to_the_pods_own_ports(settings: Settings) -> None:
    target = choice.existing(settings, Shell())
    assert isinstance(target, Pod)
    assert target.access.urls() == {
        "workspace": None,
        "dashboard": "http://127.0.0.1:8265",
        "relay": "tcp://127.0.0.1:5678",
    }
    assert (target.kubernetes, target.brings_example) == (None, False)


def test_it_is_not_removed_from_inside(settings: Settings) -> None:
    (step,) = choice.removable(settings, Shell())[0].steps()
    assert isinstance(step, PodsRay)
    with pytest.raises(OtherTarget) as refused:
        step.undo(print)
    assert "where it was made" in refused.value.hint


def test_its_programs_are_those_that_the_image_has(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAYSIDE_PROGRAMS", "/opt/ray/bin")
    monkeypatch.setenv("RAY_CLUSTER_NAME", "theirs")
    target = choice.existing(settings, Shell())
    environment = target.access.head.environment()  # type: ignore[attr-defined]
    assert environment["PATH"].startswith("/opt/ray/bin:")
    assert environment["RAY_AUTH_TOKEN_PATH"] == str(settings.state_folder / "rayside" / "token")
    assert target.access.cluster == "theirs"


def test_without_a_token_it_says_that_no_ray_is_there(settings: Settings) -> None:
    (settings.state_folder / "rayside" / "token").unlink()
    with pytest.raises(NotRunning, match="no Ray beside this workspace"):
        choice.existing(settings, Shell()).access.require()


def test_nobody_chooses_it() -> None:
    with pytest.raises(UnknownTarget):
        parse({"target": POD})
