"""Tests that what runc is given asks for no capability that the machine lacks."""

import json
from pathlib import Path
from typing import Any

import pytest

from bootstrap.steps import bounded_runtime
from bootstrap.steps.bounded_runtime import NAMES, bounded, bounding_set, rewrite

PROCESS: dict[str, Any] = {
    "args": ["sh"],
    "capabilities": {"bounding": ["CAP_CHOWN", "CAP_SYS_RESOURCE"], "effective": ["CAP_SYS_RESOURCE"]},
}
KEPT = {"bounding": ["CAP_CHOWN"], "effective": []}


def test_the_bounding_set_is_read_by_number() -> None:
    assert bounding_set("Name:\tsh\nCapBnd:\t0000000000000005\n") == {"CAP_CHOWN", "CAP_DAC_READ_SEARCH"}
    assert set(NAMES) - bounding_set("CapBnd:\t000001fffeffffff\n") == {"CAP_SYS_RESOURCE"}
    assert bounding_set("Name:\tsh\n") == set()


def test_only_what_is_allowed_is_kept_and_all_else_stays() -> None:
    assert bounded(PROCESS, {"CAP_CHOWN", "CAP_KILL"}) == {"args": ["sh"], "capabilities": KEPT}
    assert bounded({"args": ["sh"]}, set()) == {"args": ["sh"]}


@pytest.mark.parametrize("option", [["--bundle", "{}"], ["--bundle={}"], ["-b", "{}"]])
def test_a_bundle_is_bounded_when_a_container_is_created(tmp_path: Path, option: list[str]) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"ociVersion": "1.0.2", "process": PROCESS}))
    words = [word.format(tmp_path) for word in option]
    rewrite(["--root", "/run/x", "create", *words, "id"], {"CAP_CHOWN"})
    assert json.loads(file.read_text()) == {
        "ociVersion": "1.0.2",
        "process": {"args": ["sh"], "capabilities": KEPT},
    }


def test_the_process_of_an_exec_is_bounded(tmp_path: Path) -> None:
    file = tmp_path / "process"
    file.write_text(json.dumps(PROCESS))
    rewrite(["--log", "/x", "exec", "--process", str(file), "--detach", "id"], {"CAP_CHOWN"})
    assert json.loads(file.read_text())["capabilities"] == KEPT


def test_other_commands_are_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text("not even JSON")
    rewrite(["--root", str(tmp_path), "delete", "--force", "id"], set())
    rewrite(["state", "id"], set())
    assert file.read_text() == "not even JSON"


def test_it_needs_nothing_but_the_standard_library() -> None:
    # It runs by itself, in front of every container.
    source = Path(bounded_runtime.__file__).read_text()
    assert "from bootstrap" not in source
    assert "import bootstrap" not in source
