"""Tests how the head of Ray on this machine is started, what is said of one that has ended or differs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bootstrap.settings import Settings
from bootstrap.steps.differences import difference
from rayside.steps.step import Condition
from tests.targets import local_target


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(state_folder=tmp_path, target="local", ray_patience=90.0)


def test_ray_gives_its_parts_as_long_as_rayside_gives_ray(settings: Settings) -> None:
    environment = local_target(settings).head.environment()
    assert environment["RAY_DASHBOARD_STARTUP_TIMEOUT_S"] == "90"
    assert environment["RAY_agent_register_timeout_ms"] == "90000"


@pytest.mark.parametrize(
    ("log", "last_words", "gave_up"),
    [
        (
            "Some Ray subprocesses exited unexpectedly:\n  raylet [exit code=1]\n\n",
            "raylet [exit code=1]",
            False,
        ),
        (
            "Exception: The current node timed out during startup. This could\nbye\n",
            "Exception: The current node timed out during startup. This could",
            True,
        ),
    ],
)
def test_a_head_that_has_ended_is_missing_with_its_last_words(
    settings: Settings, log: str, last_words: str, gave_up: bool
) -> None:
    target = local_target(settings)
    head = target.head
    head.log.parent.mkdir(mode=0o700)
    head.log.write_text(log)
    # No process has this number: Linux's largest is 2**22.
    head.pid_file.file.write_text(json.dumps({"pid": 2**22 + 1, "created": 0.0, "spec": head.spec}))
    status = head.check()
    assert status.condition is Condition.MISSING
    assert status.detail.endswith(f"; its log says: {last_words}")
    assert status.gave_up is gave_up


def test_a_head_of_an_earlier_version_whose_start_file_is_gone_has_drifted(settings: Settings) -> None:
    head = local_target(settings).head
    head.pid_file.file.parent.mkdir(mode=0o700, exist_ok=True)
    spec = {name: value for name, value in head.spec.items() if name != "start_file"}
    head.pid_file.write(os.getpid(), spec=spec)
    status = head.check()
    assert status.condition is Condition.DRIFTED
    assert status.detail.startswith("start_file is not set")


def test_a_difference_says_whether_a_setting_or_a_file_makes_it() -> None:
    recorded, now = {"cpus": 2, "image": "a:1", "same": 0}, {"cpus": 4, "image": "a:2", "same": 0}
    text = difference(recorded, now, {"image": "its image", "same": "the same"})
    assert text == (
        "cpus is 2, the settings say 4; its image was a:1, from the files that are here now it would be a:2"
    )
    assert difference(recorded, recorded) == ""
