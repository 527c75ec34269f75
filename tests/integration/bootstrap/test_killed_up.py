"""Tests that after an `up` that was killed with SIGKILL anywhere, the next `up` continues and ends ready."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass

import pytest

from bootstrap.settings import ROOT
from rayside.console import Console
from rayside.steps import graph
from tests.integration.conftest import Rayside

# Where it is killed: when a step starts, before its check; in the middle of its apply, at the note
# that begins so; and when it is ready, before anybody has heard of it. In the order of the plan:
# each `up` has to mend what the one before left, and gets further.
PLACES = [
    ("python", "started"),
    ("disk", "started"),
    ("ray-environment", "started"),
    ("state-folder", "started"),
    ("state-folder", "finished"),
    ("ray-token", "started"),
    ("ray-token", "finished"),
    ("ray", "started"),
    ("ray", "starting"),
    ("ray", "process"),
    ("ray", "finished"),
    ("example", "started"),
    ("example", "submitting"),
    ("example", "rayside-example"),
    ("example", "finished"),
]


@dataclass
class Killer:
    """Progress that ends its own process, as `kill -9` does, at one place."""

    name: str
    place: str

    def started(self, name: str, title: str) -> None:
        self._at(name, "started")

    def note(self, name: str, text: str) -> None:
        self._at(name, text)

    def finished(self, name: str, title: str, outcome: str, detail: str) -> None:
        self._at(name, "finished")

    def _at(self, name: str, text: str) -> None:
        if name == self.name and text.startswith(self.place):
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(("name", "place"), PLACES)
def test_an_up_that_is_killed_leaves_what_the_next_one_can_go_on_from(
    rayside: Rayside, name: str, place: str
) -> None:
    killed = subprocess.run(
        [sys.executable, "-m", __name__, name, place],
        cwd=ROOT,
        env=rayside.environment,
        timeout=120,
        check=False,
        capture_output=True,
        text=True,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr


def test_the_last_up_ends_ready(rayside: Rayside) -> None:
    done = rayside.run("up")
    assert done.returncode == 0, done.stdout + done.stderr
    assert rayside.is_ready()
    assert [paused["task"] for paused in rayside.json("breakpoints")] == ["estimate"]
    assert [job.submission_id for job in rayside.target.access.require().jobs()] == ["rayside-example-1"]


if __name__ == "__main__":
    from bootstrap import given_settings, settings
    from bootstrap.targets import choice
    from bootstrap.targets.target import with_example
    from rayside.settings import environment_name
    from rayside.system.shell import Shell

    given = {key: os.environ.get(environment_name(key)) for key in settings.Settings.__dataclass_fields__}
    target = choice.choose(given_settings.parse(given), Shell())
    graph.up(with_example(target), Killer(*sys.argv[1:]))
    Console().event("was not killed")
