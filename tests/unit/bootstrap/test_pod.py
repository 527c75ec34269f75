"""Tests the target `pod`: what the workspace's image writes as its record, and what it does not do."""

from __future__ import annotations

import shutil
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from invoke.config import Config
from invoke.context import Context

import tasks
from bootstrap.errors import OtherTarget, UnknownTarget
from bootstrap.given_settings import parse
from bootstrap.instance import in_workspace
from bootstrap.settings import POD, ROOT, Settings
from bootstrap.targets import choice, preparation
from bootstrap.targets.pod import Pod, PodsRay
from rayside.console import Console
from rayside.errors import NotRunning
from rayside.system.shell import Shell


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
    (step,) = preparation.removable(settings, Shell())[0].steps()
    assert isinstance(step, PodsRay)
    with pytest.raises(OtherTarget) as refused:
        step.undo(print)
    assert "where it was made" in refused.value.hint


def test_its_programs_are_those_of_the_image(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYSIDE_PROGRAMS", "/opt/ray/bin")
    monkeypatch.setenv("RAY_CLUSTER_NAME", "theirs")
    target = choice.existing(settings, Shell())
    assert target.access.head.programs == Path("/opt/ray/bin")  # type: ignore[attr-defined]
    assert target.access.cluster == "theirs"


def test_without_a_token_it_says_that_no_ray_is_there(settings: Settings) -> None:
    (settings.state_folder / "rayside" / "token").unlink()
    with pytest.raises(NotRunning, match="no Ray beside this workspace"):
        choice.existing(settings, Shell()).access.require()


def test_nobody_chooses_it() -> None:
    with pytest.raises(UnknownTarget):
        parse({"target": POD})


@pytest.mark.parametrize("asked", [{"name": "two"}, {"target": "local"}, {"name": "two", "target": "kind"}])
def test_a_workspace_says_where_another_cluster_is_made(settings: Settings, asked: dict[str, Any]) -> None:
    with pytest.raises(OtherTarget) as refused:
        choice.choose(replace(settings, **asked), Shell())
    assert "this workspace is in the pod of a cluster" in refused.value.message
    assert ("none two" in refused.value.message) == ("name" in asked)
    assert "where Rayside was cloned" in refused.value.hint


def test_hints_of_a_workspace_send_to_the_machine_that_made_the_cluster(settings: Settings) -> None:
    assert in_workspace(settings.state_folder)
    assert not in_workspace(settings.state_folder / "another")
    shown = StringIO()
    console = Console(err=shown, out=shown, made_elsewhere=True)
    console.error(NotRunning("no Ray dashboard answers", hint="./invokew up starts one"))
    console.error(NotRunning("it is slow", hint="./invokew logs --ray says more"))
    console.result("Not ready. Next: ./invokew up")
    assert shown.getvalue().splitlines() == [
        "error[not-running]: no Ray dashboard answers",
        " hint: where Rayside was cloned: ./invokew up starts one",
        "error[not-running]: it is slow",
        " hint: ./invokew logs --ray says more",
        "Not ready. Next, where Rayside was cloned: ./invokew up",
    ]


def test_a_verb_knows_that_it_is_in_a_workspace(settings: Settings) -> None:
    def console(state_folder: Path) -> Console:
        rayside = {"rayside": {"state_folder": str(state_folder)}}
        return tasks._console(Context(Config(overrides=rayside)), None, False)

    assert console(settings.state_folder).made_elsewhere
    assert not console(settings.state_folder / "another").made_elsewhere
    assert not console(Path("not absolute")).made_elsewhere
