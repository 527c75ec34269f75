"""Tests `.vscode/launch.json`: what is there stays, or the error says what to paste."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from rayside.client import launch_json
from rayside.client.launch_json import NAME, configuration, token_prompt, with_entries
from rayside.errors import InvalidArgument

TOKEN_FILE = Path("/state/token")
OURS = configuration(5678)
PROMPT = token_prompt(TOKEN_FILE)


def added(text: str, port: int = 5678) -> str:
    return with_entries(text, "launch.json", configuration(port), PROMPT)


def drawn(document: Any, indent: int | str = 4) -> str:
    return json.dumps(document, indent=indent, ensure_ascii=False)


def pasted(hint: str) -> list[Any]:
    """Returns the JSON objects in a hint, in their order."""
    objects, decoder = [], json.JSONDecoder()
    while (start := hint.find("{")) >= 0:
        value, end = decoder.raw_decode(hint[start:])
        objects.append(value)
        hint = hint[start + end :]
    return objects


FILES = {
    "two spaces": drawn({"version": "0.2.0", "configurations": [{"name": "A", "args": ["x"]}]}, 2) + "\n",
    "tabs, no line end": drawn({"configurations": [{"name": "é", "n": -1.5, "z": None}]}, "\t"),
    "inputs of others": drawn({"configurations": [], "inputs": [{"id": "y"}], "compounds": []}) + "\n\n",
    "empty object": "{}\n",
}


@pytest.mark.parametrize("text", FILES.values(), ids=FILES.keys())
def test_what_is_there_stays_and_ours_is_added_once(text: str) -> None:
    after = added(text)
    # Things were only inserted: all of the text is there still, in its order.
    rest = iter(after)
    assert all(character in rest for character in text)
    before, document = json.loads(text), json.loads(after)
    assert document == {
        **before,
        "configurations": [*before.get("configurations", []), OURS],
        "inputs": [*before.get("inputs", []), PROMPT],
    }
    assert added(after) == after


@pytest.mark.parametrize("text", ["", "\n"])
def test_an_empty_file_is_filled(text: str) -> None:
    assert added(text) == drawn({"version": "0.2.0", "configurations": [OURS], "inputs": [PROMPT]}) + "\n"


def test_what_the_user_changed_in_ours_stays_and_the_port_follows() -> None:
    text = added("").replace('"justMyCode": true', '"justMyCode": false')
    text = text.replace('"type": "debugpy"', '"type": "python"')
    assert added(text, 9999) == text.replace("5678", "9999").replace('"python"', '"debugpy"')


def test_a_member_that_the_user_removed_comes_back() -> None:
    [ours] = json.loads(added(added("").replace('            "request": "attach",\n', "")))["configurations"]
    assert ours == OURS


def test_a_layout_of_its_own_is_no_matter_where_ours_is_there_already() -> None:
    text = json.dumps({"inputs": [PROMPT], "configurations": [{"name": "A"}, OURS]})
    assert added(text) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{\n    // mine\n    "configurations": []\n}', "comment.* line 2"),
        ("// soon\n", "comment.* line 1"),
        ('{\n  "configurations": [\n    {"name": "A"},\n  ]\n}', "trailing comma.* line"),
        ('{\n  "a": 1\n  "b": 2\n}', "mistake.* line 3"),
        ('{"configurations": [', "mistake"),
        ("{}\n{}", "mistake.* line 2"),
        ("[" * 100_000, "mistake"),
        ('{"n": ' + "1" * 5000 + "}", "mistake|layout"),
        ('\ufeff{"configurations": []}', "BOM"),
        ("[]", "not an object"),
        ('{"configurations": {}}', "lists"),
        ('{"configurations": [], "inputs": null}', "lists"),
        ('{"configurations": []}', "layout"),
        ('{\n    "configurations": [\n        {"name": "A"}\n    ]\n}\n', "layout"),
        ('{\n    "a": 1,\n    "a": 2\n}\n', "layout"),
        ('{\n    "a": "\\u00e9",\n    "b": 1e3\n}\n', "layout"),
        ('{\n    "a": "\\ud800"\n}\n', "layout"),
        ('{\r\n  "configurations": []\r\n}\r\n', "layout"),
    ],
)
def test_what_can_not_be_kept_stays_and_is_to_be_pasted(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "launch.json"
    file.write_bytes(text.encode())
    with pytest.raises(InvalidArgument) as caught:
        launch_json.write(file, port=5678, token_file=TOKEN_FILE)
    assert re.search(rf"{re.escape(str(file))} was not changed: .*({reason})", caught.value.message)
    assert pasted(caught.value.hint) == [OURS, PROMPT]
    assert file.read_bytes() == text.encode()
    assert list(tmp_path.iterdir()) == [file]


def test_the_file_is_made_where_there_is_none(tmp_path: Path) -> None:
    file = tmp_path / "a b" / ".vscode" / "launch.json"
    assert launch_json.write(file, port=7, token_file=TOKEN_FILE)
    assert json.loads(file.read_text())["configurations"][0]["connect"]["port"] == 7
    assert not launch_json.write(file, port=7, token_file=TOKEN_FILE)
    assert launch_json.write(file, port=8, token_file=TOKEN_FILE)
    assert [child.name for child in file.parent.iterdir()] == ["launch.json"]


def test_a_link_and_a_mode_are_kept(tmp_path: Path) -> None:
    real = tmp_path / "shared.json"
    real.write_text("{}")
    real.chmod(0o640)
    link = tmp_path / "launch.json"
    link.symlink_to("shared.json")
    assert launch_json.write(link, port=7, token_file=TOKEN_FILE)
    assert link.is_symlink()
    assert NAME in real.read_text()
    assert real.stat().st_mode & 0o777 == 0o640


def test_a_file_that_is_not_utf8_is_left_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "launch.json"
    file.write_bytes(b"{}\xff")
    with pytest.raises(InvalidArgument, match="not UTF-8"):
        launch_json.write(file, port=7, token_file=TOKEN_FILE)
    assert file.read_bytes() == b"{}\xff"
    assert list(tmp_path.iterdir()) == [file]


def test_no_place_to_write_to_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidArgument, match="can't be written"):
        launch_json.write(tmp_path / "file" / "launch.json", port=7, token_file=TOKEN_FILE)
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    with pytest.raises(InvalidArgument, match="can't be written"):
        launch_json.write(loop, port=7, token_file=TOKEN_FILE)
