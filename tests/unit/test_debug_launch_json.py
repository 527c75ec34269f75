"""`.vscode/launch.json`: what is there stays, byte for byte."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from bootstrap.debug import launch_json
from bootstrap.debug.launch_json import NAME, configuration, merge, token_prompt
from bootstrap.errors import InvalidArgument

TOKEN_FILE = Path("/state/token")
OURS = configuration(5678)
PROMPT = token_prompt(TOKEN_FILE)


def merged(text: str) -> str:
    return merge(text, "launch.json", OURS, PROMPT)


def plain(text: str) -> Any:
    """JSON with comments, read in another way than the one under test."""
    text = re.sub(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', lambda m: m[1] or "", text, flags=re.DOTALL)
    return json.loads(
        re.sub(r'("(?:[^"\\]|\\.)*")|,(\s*[}\]])', lambda m: m[1] or m[2], text).lstrip("\ufeff")
    )


def is_kept(before: str, after: str) -> bool:
    """Whether all of `before` is in `after`, in its order: things were only inserted."""
    rest = iter(after)
    return all(char in rest for char in before)


FILES = {
    "plain": '{\n  "version": "0.2.0",\n  "configurations": [\n    {\n      "name": "A"\n    }\n  ]\n}\n',
    "one line": '{"version": "0.2.0", "configurations": []}',
    "empty object": "{}",
    "empty object with a comment": "{\n  // nothing yet\n}\n",
    "comments": (
        '// Use IntelliSense\n{\n\t"version": "0.2.0", // of the format\n\t"configurations": [\n'
        '\t\t{ "name": "A", "url": "http://x//y/*z*/" }, // the first, really\n'
        '\t\t/* and */ { "name": "B" } // the last\n\t\t// end\n\t] /* of them */\n}\n// bye'
    ),
    "trailing commas": (
        '{\n    "configurations": [\n        {"name": "A",},\n    ],\n    "inputs": [{"id": "x",},],\n}\n'
    ),
    "comment before the comma": (
        '{\n  "configurations": [\n    {"name": "A"} // one\n    , {"name": "B"}\n  ]\n}'
    ),
    "windows": '{\r\n  "configurations": [\r\n    {"name": "A"}\r\n  ]\r\n}\r\n',
    "byte order mark": '\ufeff{"configurations": []}',
    "inputs of others": '{"configurations": [], "inputs": [{"id": "y", "type": "promptString"}]}',
    "compounds, numbers, escapes": (
        '{"configurations": [{"name": "é\\"\\u00e9", "n": -1.5e3, "t": true, "z": null}], "compounds": []}'
    ),
    "only a comment": "// soon\n",
    "empty": "",
}


@pytest.mark.parametrize("text", FILES.values(), ids=FILES.keys())
def test_what_is_there_stays_and_ours_is_added_once(text: str) -> None:
    after = merged(text)
    assert is_kept(text, after)
    document = plain(after)
    before = plain(text) if "{" in text else {}
    assert document["configurations"] == [*before.get("configurations", []), OURS]
    assert document["inputs"] == [*before.get("inputs", []), PROMPT]
    rest = {"version", "compounds"}
    assert {k: v for k, v in document.items() if k in rest} == (
        {k: v for k, v in before.items() if k in rest} if before or "{" in text else {"version": "0.2.0"}
    )
    assert merged(after) == after


def test_it_looks_as_if_written_by_hand() -> None:
    assert merged('{\n  "configurations": [\n    {"name": "A"} // mine\n  ]\n}\n') == (
        '{\n  "configurations": [\n    {"name": "A"}, // mine\n    {\n'
        f'      "name": "{NAME}",\n      "type": "debugpy",\n      "request": "attach",\n'
        '      "connect": {\n        "host": "127.0.0.1",\n        "port": 5678\n      },\n'
        '      "token": "${input:raysideToken}",\n      "pathMappings": [\n        {\n'
        '          "localRoot": "${workspaceFolder}",\n          "remoteRoot": "."\n        }\n      ],\n'
        '      "justMyCode": true,\n      "redirectOutput": true\n    }\n  ],\n'
        '  "inputs": [\n    {\n      "id": "raysideToken",\n'
        '      "type": "promptString",\n'
        '      "description": "Ray\'s token: the text in /state/token",\n'
        '      "password": true\n    }\n  ]\n}\n'
    )


def test_windows_line_ends_stay() -> None:
    assert "\n" not in merged(FILES["windows"]).replace("\r\n", "")


def test_what_the_user_changed_in_ours_stays_and_the_port_follows() -> None:
    text = merged("").replace('"justMyCode": true', '"justMyCode": false, // mine')
    text = text.replace('"type": "debugpy"', '"type": "python"')
    after = merge(text, "launch.json", configuration(9999), PROMPT)
    [ours] = plain(after)["configurations"]
    assert (ours["connect"], ours["type"]) == ({"host": "127.0.0.1", "port": 9999}, "debugpy")
    assert ours["justMyCode"] is False
    assert after == text.replace("5678", "9999").replace('"python"', '"debugpy"')


def test_a_member_that_the_user_removed_comes_back() -> None:
    text = merged("").replace('            "request": "attach",\n', "")
    after = merged(text)
    assert is_kept(text, after)
    assert plain(after)["configurations"] == [OURS]


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ('{\n  "a": 1\n  "b": 2\n}', 3, ", or }"),
        ('{\n\n  "a" 1\n}', 3, ":"),
        ("{\n  a: 1\n}", 2, "a string in double quotes"),
        ('{"a": "x\ny"}', 1, "a string"),
        ('{"a": "\\q"}', 1, "escapes"),
        ("{\n[\n", 2, "a string"),
        ('{"configurations": [', 1, "a value"),
        ("{}\n{}", 2, "the end of the file"),
        ("{\n/* never ends", 2, "a string"),
        ("[]", 1, "an object"),
        ('{"a": {},\n"configurations": {}}', 2, "a list"),
        ('{"configurations": [,]}', 1, "a value"),
        ('{"a": 01x}', 1, ", or }"),
        ("[" * 100_000, 1, "less nesting"),
    ],
)
def test_a_broken_file_is_an_error_with_its_line(text: str, line: int, expected: str) -> None:
    with pytest.raises(
        InvalidArgument, match=rf"launch\.json, line {line}: expected .*{re.escape(expected)}"
    ):
        merged(text)


def test_the_file_is_made_where_there_is_none(tmp_path: Path) -> None:
    file = tmp_path / "a b" / ".vscode" / "launch.json"
    assert launch_json.write(file, port=7, token_file=TOKEN_FILE)
    assert plain(file.read_text())["configurations"][0]["connect"]["port"] == 7
    assert not launch_json.write(file, port=7, token_file=TOKEN_FILE)
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


def test_a_broken_file_is_left_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "launch.json"
    for content in (b'{\n"a" 1}', b"{}\xff"):
        file.write_bytes(content)
        with pytest.raises(InvalidArgument):
            launch_json.write(file, port=7, token_file=TOKEN_FILE)
        assert file.read_bytes() == content
        assert list(tmp_path.iterdir()) == [file]


def test_no_place_to_write_to_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidArgument, match="can't be written"):
        launch_json.write(tmp_path / "file" / "launch.json", port=7, token_file=TOKEN_FILE)
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    with pytest.raises(InvalidArgument, match="can't be written"):
        launch_json.write(loop, port=7, token_file=TOKEN_FILE)
