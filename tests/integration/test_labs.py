"""Tests the labs on a real Ray of this machine, and a learner who follows one, leaves, edits and repeats."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bootstrap.labs.copies import FOLDER, Copy
from bootstrap.labs.lesson import lessons
from bootstrap.settings import ROOT
from tests.integration.conftest import Rayside

LAB = lessons()[0]


@pytest.fixture(scope="module")
def up(rayside: Rayside) -> Rayside:
    done = rayside.run("up", "--no-example")
    assert done.returncode == 0, done.stdout + done.stderr
    return rayside


@pytest.fixture
def learner(up: Rayside) -> Iterator[Rayside]:
    """Provides a learner who has not begun; whatever is in the place of the copies is put back afterwards."""
    aside = FOLDER.with_name("labs.aside")
    if FOLDER.exists():
        FOLDER.rename(aside)
    yield up
    shutil.rmtree(FOLDER, ignore_errors=True)
    if aside.exists():
        aside.rename(FOLDER)


@pytest.mark.timeout(1800)
def test_every_lab_fails_before_it_is_solved_and_passes_after(up: Rayside) -> None:
    document = up.json("lab", "--all", "--check", timeout=1750)
    results = {result["name"]: result for result in document["labs"]}
    assert list(results) == [lesson.name for lesson in lessons()]
    for lesson in lessons():
        result = results[lesson.name]
        assert result["target"] == "local"
        if "local" in lesson.targets:
            assert (result["status"], result["why"]) == ("passed", ""), result
        else:
            assert (result["status"], "./invokew up --target kind" in result["why"]) == ("skipped", True)


def test_a_learner_checks_edits_solves_and_begins_anew(learner: Rayside) -> None:
    listed = {row["name"]: row for row in learner.json("labs")}
    assert listed[LAB.name]["passed"] is False
    error = learner.json("lab", LAB.name, "--check", code=1)["error"]
    assert (error["id"], "answers.yaml has nothing for" in error["message"]) == ("not-solved", True)
    copy = Copy(LAB)
    answers = copy.folder / "answers.yaml"
    answers.write_text("shop: [not, closed\n")
    assert learner.json("lab", "1", "--check", code=2)["error"]["id"] == "invalid-yaml"
    kept = learner.json("lab", "1", "--reset")["kept"]
    assert Path(kept, "answers.yaml").read_text() == "shop: [not, closed\n"
    answers.write_text("shop: [not, closed\n")
    learner.json("lab", "1", "--solve")
    assert learner.json("lab", "1", "--check", timeout=240) == {"name": LAB.name, "passed": True}
    listed = {row["name"]: row for row in learner.json("labs")}
    assert listed[LAB.name]["passed"] is True


def test_one_who_leaves_half_way_goes_on_where_they_were(learner: Rayside) -> None:
    command = [str(ROOT / "invokew"), "lab", "1"]
    # `script` gives it a terminal; the first step is skipped, then the learner leaves.
    first = terminal(learner, command, "s\nq\n")
    assert "Step 1 of" in first
    assert "Step 2 of" in first
    assert Copy(LAB).progress().steps_done == 1
    second = terminal(learner, command, "q\n")
    assert "Step 1 of" not in second
    assert "Step 2 of" in second


def test_without_a_terminal_all_steps_are_told_and_none_is_run(learner: Rayside) -> None:
    done = learner.run("lab", "1")
    assert done.returncode == 0, done.stderr
    for step in LAB.steps:
        assert step.title in done.stdout
    assert learner.json("breakpoints") == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("lab", "breakpiont"), "did you mean 01-breakpoint?"),
        (("lab", "1", "--check", "--reset"), "give one of them"),
        (("lab", "--all"), "./invokew lab --all --check"),
    ],
)
def test_what_is_typed_wrong_is_said(up: Rayside, words: tuple[str, ...], says: str) -> None:
    error = up.json(*words, code=2)["error"]
    assert error["id"] == "invalid-argument"
    assert says in error["hint"]


def terminal(learner: Rayside, command: list[str], typed: str) -> str:
    """Returns what a command shows on a terminal at which this is typed."""
    done = subprocess.run(
        ["script", "--quiet", "--return", "--command", " ".join(command), "/dev/null"],
        input=typed,
        env=learner.environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
