"""Tests the labs on a real Ray of this machine, and a learner who follows one, leaves, edits and repeats."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest

from bootstrap.labs.copies import Copy, Progress
from bootstrap.labs.lesson import Lesson, lessons
from bootstrap.settings import ROOT, Settings
from bootstrap.verbs import labs as verbs
from rayside.console import Console
from rayside.waiting import until
from tests.integration.conftest import Rayside
from tests.learner import new_learner

LAB = lessons()[0]


@pytest.fixture(scope="module")
def up(rayside: Rayside) -> Rayside:
    done = rayside.run("up", "--no-example")
    assert done.returncode == 0, done.stdout + done.stderr
    return rayside


@pytest.fixture
def learner(up: Rayside) -> Iterator[Rayside]:
    """Provides a learner who has not begun."""
    with new_learner():
        yield up


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
    assert copy.progress().checks_failed == 1
    answers = copy.folder / "answers.yaml"
    answers.write_text("shop: [not, closed\n")
    assert learner.json("lab", "1", "--check", code=2)["error"]["id"] == "invalid-yaml"
    kept = learner.json("lab", "1", "--reset")["kept"]
    assert Path(kept, "answers.yaml").read_text() == "shop: [not, closed\n"
    answers.write_text("shop: [not, closed\n")
    learner.json("lab", "1", "--solve")
    assert learner.json("lab", "1", "--check", timeout=240) == {"name": LAB.name, "passed": True}
    assert copy.progress().checks_failed == 0
    listed = {row["name"]: row for row in learner.json("labs")}
    assert listed[LAB.name]["passed"] is True


def test_all_labs_that_were_begun_begin_anew(learner: Rayside) -> None:
    assert learner.json("lab", "--all", "--reset") == {"labs": []}
    copy = Copy(LAB)
    copy.make()
    (copy.folder / "mine.txt").write_text("mine\n")
    copy.note(Progress(2, checks_failed=3))
    (row,) = learner.json("lab", "--all", "--reset")["labs"]
    assert (row["name"], row["folder"]) == (LAB.name, str(copy.folder))
    assert Path(row["kept"], "mine.txt").read_text() == "mine\n"
    assert copy.progress() == Progress()


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


def test_one_lab_is_told_in_json_with_the_files_of_the_copy_which_is_made(learner: Rayside) -> None:
    document = learner.json("lab", "1")
    (row,) = [row for row in learner.json("labs") if row["name"] == LAB.name]
    assert row == {key: document[key] for key in row}
    assert document["files"] == ["answers.yaml", "main.py", "prices/__init__.py"]
    assert all(Path(document["folder"], name).is_file() for name in document["files"])
    assert [Path(document["texts"][key]).name for key in ("en", "zh")] == ["README.md", "README.zh.md"]


def test_a_step_is_run_by_its_number_and_counts_as_done(learner: Rayside) -> None:
    done = learner.run("lab", "1", "--step", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[:2] == [
        f"Step 2 of {len(LAB.steps)}: {LAB.steps[1].title}",
        "./invokew breakpoints",
    ]
    assert Copy(LAB).progress() == Progress(steps_done=2)
    # One that comes before it takes nothing back; its job is there, on the cluster that was asked for.
    done = learner.run("lab", "1", "--step", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert Copy(LAB).progress() == Progress(steps_done=2)
    dashboard = learner.target.access.require()
    (job,) = [job for job in dashboard.jobs() if not job.ended]
    # Workers that were just beginning a task when their driver went may stay, as it seems.
    assert len(until(dashboard.waiting, lambda waiting: len(waiting) > 1, 60)) > 1
    dashboard.stop(job.submission_id)


@pytest.mark.parametrize(
    ("command", "done"),
    [
        *(("exit 0", True), ("exit 1", True), ("exit 5", True), ("exit 137", True)),
        *(("exit 2", False), ("exit 4", False), ("exit 130", False), ("kill -INT $$", False)),
        ("there-is-no-such-program", False),
    ],
)
def test_a_step_counts_as_done_unless_its_command_did_not_get_to_its_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, done: bool
) -> None:
    folder = tmp_path / "01-one"
    folder.mkdir()
    steps = f"### First\n\n```sh\n{command}\n```\n"
    (folder / "README.md").write_text(f"# One\n\n## Goal\n\nA goal.\n\n## Steps\n\n{steps}")
    copy = Copy(Lesson(folder), tmp_path / "labs")
    copy.make()
    exercise = SimpleNamespace(dashboard=SimpleNamespace(jobs=list))
    monkeypatch.setattr(verbs, "_at_work", lambda *given: (copy, exercise))
    code = verbs.run_step(Settings(), Console(out=StringIO()), copy.lesson, "1")
    assert (code == 0) == (command == "exit 0")
    assert copy.progress() == Progress(steps_done=int(done))


def test_a_step_ends_what_another_lab_has_left_waiting_and_reset_what_this_one_has(learner: Rayside) -> None:
    learner.json("lab", "7")
    learner.json("lab", "1")
    dashboard = learner.target.access.require()
    mine = learner.json("submit", "--working-dir", "labs/01-breakpoint", "--entrypoint", "sleep 600")
    others = learner.json("submit", "--working-dir", "labs/07-pdb", "--entrypoint", "sleep 600")
    done = learner.run("lab", "1", "--step", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"end of job {others['submission_id']}, which lab 07-pdb had left running" in done.stderr
    running = [job.submission_id for job in dashboard.jobs() if not job.ended]
    assert running == [mine["submission_id"]]
    learner.json("lab", "1", "--reset")
    assert [job for job in dashboard.jobs() if not job.ended] == []


def test_without_a_terminal_all_steps_are_told_and_none_is_run(learner: Rayside) -> None:
    done = learner.run("lab", "1")
    assert done.returncode == 0, done.stderr
    for step in LAB.steps:
        assert step.title in done.stdout
    # Tasks of a job that was stopped before are listed until Ray has seen their processes end.
    waiting = until(lambda: learner.json("breakpoints"), lambda waiting: waiting == [], 60)
    assert waiting == [], (learner.target.access.require().jobs(), learner.processes())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("lab", "breakpiont"), "did you mean 01-breakpoint?"),
        (("lab", "1", "--check", "--reset"), "give one of them"),
        (("lab", "--all"), "./invokew lab --all --check"),
        (("lab", "--all", "--check", "--step", "1"), "./invokew lab --all --check"),
        (("lab", "1", "--step", "1", "--check"), "give one of them"),
        (("lab", "1", "--step", "1"), "leave --json out"),
        (("lab", "1", "--step", "0"), "it has 1 to 5"),
        (("lab", "1", "--step", "6"), "it has 1 to 5"),
        (("lab", "1", "--step", "1; id"), "it has 1 to 5"),
        (("lab", "2", "--step", "3"), "do what its text says"),
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
