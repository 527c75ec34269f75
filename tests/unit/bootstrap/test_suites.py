"""Tests of the verb `test`: suites that can't run here, shards, and which failures get a second look."""

from collections import defaultdict
from dataclasses import dataclass
from pathlib import PurePosixPath

import pytest

from bootstrap.errors import EngineNotPermitted
from bootstrap.settings import ROOT
from bootstrap.verbs.development import Suite, again, suites
from bootstrap.verbs.development import test as run
from rayside.console import Console
from rayside.errors import InvalidArgument
from rayside.steps.step import Report, Status, missing, ready
from tests import lanes


@dataclass(frozen=True)
class Engine:
    """A step of the machine that is as scripted: a status, or the error that its check raises."""

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


@pytest.mark.parametrize(
    ("needs", "lacks"),
    [
        ((), ""),
        ((Engine(ready("Docker 20")),), ""),
        ((Engine(missing("no engine")),), "no engine"),
        # An engine one may not use is a missing one, and no end of all tests.
        ((Engine(EngineNotPermitted("you may not use it", hint="join its group")),), "you may not use it"),
    ],
)
def test_a_suite_can_run_when_what_it_needs_is_ready(needs: tuple[Engine, ...], lacks: str) -> None:
    assert Suite("e2e", needs=needs).missing() == lacks


def test_every_suite_is_a_folder_of_tests_and_says_what_enables_it() -> None:
    assert [suite.name for suite in suites()] == ["unit", "integration", "browser", "e2e"]
    assert all((ROOT / "tests" / suite.name / "__init__.py").exists() for suite in suites())
    assert {suite.enable for suite in suites() if suite.needs} == {"./invokew doctor --fix --tests"}
    with_browser = [suite.name for suite in suites() if any(step.name == "chromium" for step in suite.needs)]
    assert with_browser == ["browser", "e2e"]


FILES = [
    PurePosixPath(file.relative_to(ROOT))
    for suite in suites()
    for file in (ROOT / "tests" / suite.name).rglob("test_*.py")
]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_each_file_is_in_one_shard_and_each_shard_has_some_of_each_large_suite(count: int) -> None:
    shards = lanes.shards(FILES, count)
    assert set(shards) == set(FILES)
    assert set(shards.values()) == set(range(1, count + 1))
    for suite in ("unit", "integration", "e2e"):
        assert {shard for file, shard in shards.items() if file.parts[1] == suite} == set(shards.values())


def test_a_shard_takes_forty_minutes_at_most_on_two_processors() -> None:
    shards = lanes.shards(FILES, 5)
    for shard in range(1, 6):
        files = [file for file in FILES if shards[file] == shard]
        longest = max(sum(map(lanes.seconds, of)) for of in by_lane(files).values())
        assert max(longest, sum(map(lanes.seconds, files)) / 2) < 40 * 60


def by_lane(files: list[PurePosixPath]) -> dict[str, list[PurePosixPath]]:
    """Returns the files of each lane, as if all that may use a Ray did."""
    lane: dict[str, list[PurePosixPath]] = defaultdict(list)
    for file in files:
        lane[lanes.lane(file, {"rayside"})].append(file)
    return lane


@pytest.mark.parametrize("shard", ["3/2", "0/2", "1/0", "1", "a/b", "-1/2", "1/2/3", "1/1000", ""])
def test_a_shard_that_is_no_piece_is_refused(shard: str) -> None:
    with pytest.raises(InvalidArgument, match="is no piece of the tests"):
        run(Console(), suite=None, everything=True, shard=shard, arguments="")
    # The gate has no shards.
    with pytest.raises(InvalidArgument, match="divides all tests"):
        run(Console(), suite=None, everything=False, shard="1/2", arguments="")


FAILED = """FAILED tests/e2e/test_kind.py::test_it[a b]
    in setup after 3 s
    FAILED to start
FAILED tests/e2e/test_kind.py::test_it[a b]
    in teardown after 0 s
FAILED tests/integration/bootstrap/test_up.py::test_it
"""


def test_what_failed_is_looked_at_again_once_but_not_beside_a_unit_test() -> None:
    assert again(FAILED) == [
        "tests/e2e/test_kind.py::test_it[a b]",
        "tests/integration/bootstrap/test_up.py::test_it",
    ]
    assert again(f"{FAILED}FAILED tests/unit/rayside/test_dap.py::test_it\n") == []
    assert again(f"{FAILED}ERROR tests/integration/rayside/test_relay.py\n    ImportError\n") == []


def test_what_the_lanes_name_is_there() -> None:
    folder = ROOT / "tests"
    code = "".join(file.read_text() for file in (folder / "integration").glob("*.py"))
    assert all(f"def {fixture}(" in code for fixture in lanes.WITH_RAY)
    assert f"def {lanes.FIRST}(" in (folder / "e2e" / f"{lanes.LAST}.py").read_text()
