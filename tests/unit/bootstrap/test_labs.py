"""Tests what every lab has to be, how one is named, and the learner's copies."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from bootstrap.errors import NotSolved, OtherTarget
from bootstrap.labs import copies
from bootstrap.labs.checking import cannot_run, require_possible
from bootstrap.labs.copies import Copy, Progress
from bootstrap.labs.exercise import Exercise
from bootstrap.labs.lesson import FOLDER, NEEDS, SECTIONS, Lesson, Need, find, lacking, lessons
from bootstrap.settings import POD, TARGETS
from bootstrap.targets.target import Target
from rayside.errors import InvalidArgument, MissingProgram, NotRunning, UnsafeFolder
from rayside.ray import packages
from rayside.ray.metadata import USER, WORKING_DIR
from rayside.ray.records import Job
from rayside.ray.state import Dashboard
from tests.targets import kind_target, local_target
from tests.unit.scripted_jobs_api import jobs_api

LABS = lessons()


@pytest.fixture
def lesson(tmp_path: Path) -> Lesson:
    folder = tmp_path / "lessons" / "07-one"
    (folder / "package").mkdir(parents=True)
    (folder / "solution").mkdir()
    (folder / "main.py").write_text("wrong\n")
    (folder / "package" / "__init__.py").write_text("")
    (folder / "solution" / "main.py").write_text("right\n")
    (folder / "lab.py").write_text("TARGETS = ('local',)\n")
    steps = "### First\n\nText.\n\n```sh\necho 1\n```\n\n### Second\n\nMore.\n"
    (folder / "README.md").write_text(f"# One\n\n## Goal\n\nA goal.\n\n## Steps\n\n{steps}")
    return Lesson(folder)


@pytest.fixture
def copy(lesson: Lesson, tmp_path: Path) -> Copy:
    """A learner's copy of the lab, which was made."""
    made = Copy(lesson, tmp_path / "labs")
    made.make()
    return made


@pytest.mark.parametrize("lab", LABS, ids=lambda lab: lab.name)
def test_a_lab_is_whole(lab: Lesson) -> None:
    assert re.fullmatch(r"\d\d-[a-z0-9-]+", lab.name)
    assert lab.title and all(lab.section(name) for name in SECTIONS)
    assert lab.steps and lab.targets and set(lab.targets) <= {*TARGETS, POD}
    assert set(lab.needs) <= set(NEEDS)
    assert callable(lab.code.verify)
    assert (lab.folder / "solution").is_dir() or callable(lab.code.solve)
    # What is named in the steps is there.
    for path in re.findall(rf"labs/{lab.name}/([\w./-]*\w)", lab.section("Steps")):
        assert (lab.folder / path).exists(), path


@pytest.mark.parametrize("lab", LABS, ids=lambda lab: lab.name)
def test_a_lab_shows_what_it_prints_and_ends_what_is_paused(lab: Lesson) -> None:
    with_command = [step for step in lab.steps if step.command]
    # The output follows the command; of some steps it would be the answer that is asked for, and of some what
    # Kubernetes says, which is not ours.
    shown = [step for step in with_command if re.search(r"^```$\n\n```text$", step.text, re.MULTILINE)]
    least = len(with_command) // 2 if "local" in lab.targets else 1
    assert len(shown) >= least, [step.title for step in with_command if step not in shown]
    # A reader is told what a command is for before it is shown.
    assert all(not step.text.startswith("```") for step in with_command)
    if any("./invokew debug" in step.command for step in with_command):
        assert "`quit`" in lab.section("Steps")


def test_what_a_lab_prints_stays_together() -> None:
    """Ray has drivers write without a buffer: between two arguments of `print` comes what a worker prints."""
    for file in FOLDER.rglob("*.py"):
        for call in ast.walk(ast.parse(file.read_text())):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "print":
                single = len(call.args) <= 1 and not any(isinstance(each, ast.Starred) for each in call.args)
                assert single, f"{file}:{call.lineno}"


def test_the_table_of_techniques_has_each_lab_and_where_it_can_be_done() -> None:
    table = (FOLDER / "README.md").read_text()
    rows = re.findall(
        r"^\| .+ \| \[([\w-]+)\]\(([\w-]+)/README\.md\) \| (.+) \| yes \|$", table, re.MULTILINE
    )
    assert all(name == folder for name, folder, _ in rows)
    assert {name: targets for name, _, targets in rows} == {lab.name: ", ".join(lab.targets) for lab in LABS}


def test_lab_18_recorded_the_package_that_its_folder_still_makes() -> None:
    folder = FOLDER / "18-reproduce"
    with jobs_api() as api:
        sent = packages.working_dir(api.dashboard(), folder / "job")
    assert json.loads((folder / "failed" / "job.json").read_text())["runtime_env"]["working_dir"] == sent
    assert sent.removeprefix("gcs://").removesuffix(".zip") in (folder / "failed" / "output.txt").read_text()


def test_their_numbers_are_their_own() -> None:
    numbers = [lab.name[:2] for lab in LABS]
    assert len(numbers) == len(set(numbers))


@pytest.mark.parametrize("name", ["07-one", "7", "07", "one", " One "])
def test_a_lab_is_found_by_its_name_or_number(lesson: Lesson, name: str) -> None:
    assert find(name, [lesson]) == lesson


def test_of_an_unknown_one_the_nearest_is_named(lesson: Lesson) -> None:
    with pytest.raises(InvalidArgument) as raised:
        find("oen", [lesson])
    assert raised.value.hint.startswith("did you mean 07-one?")
    with pytest.raises(InvalidArgument) as raised:
        find("zzzzzz", [lesson])
    assert "mean" not in raised.value.hint


def test_its_steps_are_those_of_its_readme(lesson: Lesson) -> None:
    assert (lesson.title, lesson.section("Goal")) == ("One", "A goal.")
    assert [(step.title, step.command) for step in lesson.steps] == [("First", "echo 1"), ("Second", "")]
    with pytest.raises(ValueError, match="has no section 'Why'"):
        lesson.section("Why")


def test_a_need_that_is_lacking_comes_with_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert lacking(["mypy"])["mypy"].brings == ".venv/bin/python -m pip install mypy"
    monkeypatch.setitem(NEEDS, "mypy", Need(lambda: True, "nothing"))
    assert lacking(["mypy"]) == {}


def test_a_lab_that_cant_be_done_says_what_it_needs(lesson: Lesson, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(lesson), "needs", ("gdb", "mypy"))
    for name in ("gdb", "mypy"):
        monkeypatch.setitem(NEEDS, name, Need(lambda: False, f"bring {name}"))
    local, kind = local_target(), kind_target()
    with pytest.raises(MissingProgram, match="it needs gdb and mypy") as lacks:
        require_possible(lesson, local)
    assert lacks.value.hint == "bring gdb && bring mypy"
    with pytest.raises(OtherTarget, match="it needs a cluster on local") as other:
        require_possible(lesson, kind)
    assert other.value.hint == "./invokew up --target local"
    assert cannot_run(lesson, kind) == "it needs a cluster on local: ./invokew up --target local"


def test_the_copy_has_the_files_and_neither_solution_nor_check(copy: Copy) -> None:
    files = {str(file.relative_to(copy.folder)) for file in copy.folder.rglob("*") if file.is_file()}
    assert files == {"main.py", "package/__init__.py"}


def test_made_again_it_keeps_what_was_edited_and_gets_what_is_gone(copy: Copy) -> None:
    (copy.folder / "main.py").write_text("mine\n")
    (copy.folder / "package" / "__init__.py").unlink()
    copy.make()
    assert (copy.folder / "main.py").read_text() == "mine\n"
    assert (copy.folder / "package" / "__init__.py").exists()


def test_reset_keeps_what_was_edited_aside(copy: Copy) -> None:
    assert copy.reset() is None
    (copy.folder / "main.py").write_text("mine\n")
    (copy.folder / "notes" / "a").mkdir(parents=True)
    (copy.folder / "notes" / "a" / "b.txt").write_text("too\n")
    (copy.folder / "notes" / "a" / "b.txt").chmod(0o755)
    copy.note(Progress(1, passed=True))
    kept = copy.reset()
    assert kept is not None
    assert (kept / "notes" / "a" / "b.txt").stat().st_mode & 0o777 == 0o755
    assert {str(file.relative_to(kept)): file.read_text() for file in kept.rglob("*") if file.is_file()} == {
        "main.py": "mine\n",
        "notes/a/b.txt": "too\n",
    }
    assert (copy.folder / "main.py").read_text() == "wrong\n"
    assert copy.progress() == Progress()


def test_the_solution_keeps_what_was_edited_aside(copy: Copy) -> None:
    (copy.folder / "main.py").write_text("mine\n")
    copy.solve()
    assert (copy.folder / "main.py").read_text() == "right\n"
    assert [file.read_text() for file in copy.home.glob(".kept/*/main.py")] == ["mine\n"]


def test_nothing_is_written_through_a_link_of_the_learners(copy: Copy, tmp_path: Path) -> None:
    (copy.folder / "main.py").unlink()
    (copy.folder / "main.py").symlink_to(tmp_path / "elsewhere.py")
    copy.make()
    assert not (tmp_path / "elsewhere.py").exists()
    kept = copy.reset()
    assert kept is not None
    assert (kept / "main.py").readlink() == tmp_path / "elsewhere.py"
    assert (copy.folder / "main.py").read_text() == "wrong\n"


@pytest.mark.parametrize("text", ["1e999", "-3", "99", '"x"', "[" * 5_000])
def test_a_record_that_somebody_wrote_is_no_more_than_a_lab_can_have(copy: Copy, text: str) -> None:
    (copy.folder / ".lab.json").write_text(f'{{"passed": false, "checks_failed": 0, "steps_done": {text}}}')
    assert 0 <= copy.progress().steps_done <= len(copy.lesson.steps)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"steps_done": 1, "passed": false, "checks_failed": 3}', Progress(1, checks_failed=3)),
        ('{"steps_done": 1, "passed": false, "checks_failed": -3}', Progress(1)),
        *(
            (damaged, Progress())
            for damaged in (
                "",
                "{",
                "[]",
                '{"steps_done": "x", "passed": true}',
                '{"steps_done": 1, "passed": false}',
            )
        ),
    ],
)
def test_a_record_says_how_often_it_failed_unless_damaged(copy: Copy, text: str, expected: Progress) -> None:
    copy.note(Progress(1, passed=True))
    assert copy.progress() == Progress(1, passed=True)
    (copy.folder / ".lab.json").write_text(text)
    assert copy.progress() == expected


def test_a_ray_that_has_gone_hides_nothing_that_went_wrong_before(lesson: Lesson, tmp_path: Path) -> None:
    class Gone:
        @property
        def access(self) -> None:
            raise NotRunning("Ray died", hint="up")

    Exercise(tmp_path, cast(Target, Gone()), print).close()


def test_a_file_that_is_no_text_is_said(lesson: Lesson, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_bytes(b"\xff\xfe")
    with pytest.raises(NotSolved, match="it is not UTF-8 text"):
        Exercise(tmp_path, cast(Target, None), print).text("main.py")


def test_a_link_in_the_place_of_a_copy_is_refused(lesson: Lesson, tmp_path: Path) -> None:
    copy = Copy(lesson, tmp_path / "labs")
    copy.home.mkdir()
    (tmp_path / "elsewhere").mkdir()
    copy.folder.symlink_to(tmp_path / "elsewhere")
    for writes in (copy.make, copy.reset, copy.solve):
        with pytest.raises(UnsafeFolder):
            writes()
    assert list((tmp_path / "elsewhere").iterdir()) == []


class Jobs(Dashboard):
    """A dashboard with these jobs, each of which has ended as soon as it was stopped."""

    def __init__(self, *jobs: Job) -> None:
        self.known = {job.submission_id: job for job in jobs}

    def jobs(self) -> list[Job]:
        return list(self.known.values())

    def stop(self, submission_id: str) -> None:
        self.known[submission_id] = replace(self.known[submission_id], status="STOPPED")


def submitted(name: str, working_dir: object, status: str = "RUNNING", user: str = "") -> Job:
    metadata = {WORKING_DIR: str(working_dir)} if working_dir else {}
    metadata |= {USER: user} if user else {}
    return Job(name, None, status, "python main.py", "", None, 0.0, metadata, {})


def test_what_labs_have_left_running_is_known_by_the_folder_that_was_submitted(tmp_path: Path) -> None:
    home = tmp_path / "labs"
    dashboard = Jobs(
        submitted("pdb", home / "07-pdb"),
        submitted("below", home / "18-reproduce" / "job"),
        submitted("ended", home / "07-pdb", "SUCCEEDED"),
        submitted("all", home),
        submitted("elsewhere", tmp_path / "labs-of-mine" / "07-pdb"),
        submitted("relative", "labs/07-pdb"),
        submitted("none", None),
        submitted("own", home / "my-experiment"),
        submitted("kept", home / ".kept" / "07-pdb"),
        submitted("out", home / "07-pdb" / ".." / ".." / "mine"),
        submitted("colleague's", home / "07-pdb", user="bob"),
    )
    assert copies.running(dashboard, home) == {"pdb": "07-pdb", "below": "18-reproduce"}
    copies.end(dashboard, ["pdb"])
    assert copies.running(dashboard, home) == {"below": "18-reproduce"}
    assert {name for name, job in dashboard.known.items() if job.ended} == {"pdb", "ended"}


def changed(lesson: Lesson, folder: Path, **files: str) -> Path:
    """Returns a folder with the lab, in which these files are other ones."""
    shutil.copytree(lesson.folder, folder)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


def test_a_changed_lab_leaves_what_the_learner_edited(lesson: Lesson, tmp_path: Path) -> None:
    own = Lesson(tmp_path / "clone" / lesson.name)
    shutil.copytree(lesson.folder, own.folder)
    first, second = "one.txt", "two.txt"
    for name in (first, second):
        (own.folder / name).write_text("as it was\n")
    copy = Copy(own, tmp_path / "labs")
    copy.make()
    (copy.folder / first).write_text("mine\n")
    (copy.folder / "notes.txt").write_text("mine too\n")
    new = changed(own, tmp_path / "new", README__md=f"{(own.folder / 'README.md').read_text()}\nMore.\n")
    (new / first).write_text("theirs\n")
    (new / second).write_text("theirs, too\n")
    (new / "added").mkdir()
    (new / "added" / "more.py").write_text("more\n")
    assert copy.update(new) == (["added/more.py", second], [first])
    texts = {name: (copy.folder / name).read_text() for name in (first, second, "notes.txt", "added/more.py")}
    assert [*texts.values()] == ["mine\n", "theirs, too\n", "mine too\n", "more\n"]
    assert (own.folder / "README.md").read_text().endswith("\nMore.\n")
    # Once more, nothing is left to do; and what goes, goes from the lab alone.
    assert copy.update(new) == ([], [first])
    shutil.rmtree(new / "added")
    assert copy.update(new) == ([], [first])
    assert not (own.folder / "added" / "more.py").exists()
    assert (copy.folder / "added" / "more.py").exists()


def test_a_changed_lab_that_was_not_begun_is_the_one_that_is_begun(lesson: Lesson, tmp_path: Path) -> None:
    own = Lesson(tmp_path / "clone" / lesson.name)
    shutil.copytree(lesson.folder, own.folder)
    copy = Copy(own, tmp_path / "labs")
    name = next(file.name for file in own.files if file.is_file())
    new = changed(own, tmp_path / "new")
    (new / name).write_text("theirs\n")
    assert copy.update(new) == ([], [])
    assert not copy.exists
    copy.make()
    assert (copy.folder / name).read_text() == "theirs\n"
