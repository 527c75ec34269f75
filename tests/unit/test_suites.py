"""Tests which suites of tests can run here, and what is said of those that can't."""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from bootstrap.errors import EngineNotPermitted
from bootstrap.settings import ROOT
from bootstrap.step import Report, Status, missing, ready
from bootstrap.verbs.development import Suite, suites
from tests import lanes


@dataclass(frozen=True)
class Engine:
    """Is a step of the machine that is as scripted: a status, or the error that its check raises."""

    status: Status | EngineNotPermitted
    name: str = "engine"
    title: str = "engine"
    needs: tuple[str, ...] = ()
    patience: float = 0.0

    def check(self) -> Status:
        if isinstance(self.status, Status):
            return self.status
        raise self.status

    def apply(self, report: Report) -> None:
        raise AssertionError("looking at a suite changes nothing")

    def undo(self, report: Report) -> None:
        raise AssertionError("looking at a suite changes nothing")


def test_a_suite_that_needs_nothing_can_run() -> None:
    assert Suite("unit").missing() == ""


def test_a_suite_can_run_when_what_it_needs_is_ready() -> None:
    assert Suite("e2e", needs=(Engine(ready("Docker 20")),)).missing() == ""
    assert Suite("e2e", needs=(Engine(missing("no engine")),)).missing() == "no engine"


def test_an_engine_one_may_not_use_is_a_missing_one_and_no_end_of_all_tests() -> None:
    refused = EngineNotPermitted("you may not use it", hint="join its group")
    assert Suite("e2e", needs=(Engine(refused),)).missing() == "you may not use it"


def test_every_suite_is_a_folder_of_tests_and_says_what_enables_it() -> None:
    assert [suite.name for suite in suites()] == ["unit", "integration", "browser", "e2e"]
    assert all((ROOT / "tests" / suite.name / "__init__.py").exists() for suite in suites())
    assert {suite.enable for suite in suites() if suite.needs} == {"./invokew doctor --fix --tests"}


def test_a_browser_is_among_what_the_suites_with_one_need() -> None:
    with_one = [suite.name for suite in suites() if any(step.name == "chromium" for step in suite.needs)]
    assert with_one == ["browser", "e2e"]


def test_a_suite_has_the_lanes_that_its_files_are_in() -> None:
    for suite in suites():
        files = [
            PurePosixPath("tests") / suite.name / file.name for file in folder_of(suite).glob("test_*.py")
        ]
        uses = [(), ("kind",), *((fixture,) for fixture in lanes.WITH_RAY)]
        used = {lanes.lane(file, fixtures) for file in files for fixtures in uses}
        assert used == set(suite.lanes), suite.name


def test_what_the_lanes_name_is_there() -> None:
    by_name = {suite.name: folder_of(suite) for suite in suites()}
    code = "".join(file.read_text() for file in by_name["integration"].glob("*.py"))
    assert all(f"def {fixture}(" in code for fixture in lanes.WITH_RAY)
    assert f"def {lanes.FIRST}(" in (by_name["e2e"] / f"{lanes.LAST}.py").read_text()


def folder_of(suite: Suite) -> Path:
    return ROOT / "tests" / suite.name
