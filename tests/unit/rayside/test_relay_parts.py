"""Tests the relay's parts without a connection: numbers, paths, lines, and what an editor asked for."""

from __future__ import annotations

import json
import time
import tracemalloc
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from rayside.relay import translation
from rayside.relay.configuration import Desired
from rayside.relay.source_files import Layout, Lines, Paths, sha256_of
from rayside.relay.stop_points import Result
from rayside.relay.translation import OF_A_STOP, Ids, UnknownId
from rayside.worker.evaluated import sources

SESSION = "/tmp/ray/session_2026/runtime_resources"
WORKING_DIR = f"{SESSION}/working_dir_files/_ray_pkg_aa"
ONE, TWO = f"{SESSION}/py_modules_files/_ray_pkg_bb", f"{SESSION}/py_modules_files/_ray_pkg_cc"
LAYOUT = Layout.of({WORKING_DIR: [], ONE: ["one"], TWO: ["two", "two.pth"]})
ROOTS = {
    "_ray_pkg_aa": ["/home/me/project", "/data/project"],
    "_ray_pkg_bb": ["/lib"],
    "_ray_pkg_cc": ["/lib"],
}


# --- numbers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("outer", [0, -1, 99, "1", None, 1.0, [], {}, 10**30])
def test_a_number_that_was_never_given_or_is_of_another_kind_is_unknown(outer: Any) -> None:
    ids = Ids()
    for number in (outer, ids.outer("a", "thread", 1)):
        with pytest.raises(UnknownId):
            ids.inner(number, "frame")


def test_what_belongs_to_a_stop_is_forgotten_with_it_and_nothing_is_given_twice() -> None:
    ids = Ids()
    thread, frame = ids.outer("a", "thread", 1), ids.outer("a", "frame", 1)
    other = ids.outer("b", "frame", 1)
    ids.forget("a", OF_A_STOP)
    assert ids.inner(thread, "thread") == ("a", 1)
    assert ids.inner(other, "frame") == ("b", 1)
    with pytest.raises(UnknownId):
        ids.inner(frame, "frame")
    assert ids.outer("a", "frame", 1) > other
    ids.forget("a")
    ids.forget("b")
    assert len(ids._inner) == 0


# --- paths ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("local", "remote"),
    [
        ("/home/me/project/job.py", f"{WORKING_DIR}/job.py"),
        ("/home/me/project/./a/../job.py", f"{WORKING_DIR}/job.py"),
        ("/data/project/a/b.py", f"{WORKING_DIR}/a/b.py"),
        ("/lib/one/x.py", f"{ONE}/one/x.py"),
        ("/lib/two/x.py", f"{TWO}/two/x.py"),
        ("/lib/three/x.py", "/lib/three/x.py"),
        ("/home/me/project2/job.py", "/home/me/project2/job.py"),
        ("/x/session_latest/runtime_resources/working_dir_files/_ray_pkg_aa/a.py", f"{WORKING_DIR}/a.py"),
        ("/x/working_dir_files/_ray_pkg_zz/a.py", "/x/working_dir_files/_ray_pkg_zz/a.py"),
        ("/usr/lib/python3/json/__init__.py", "/usr/lib/python3/json/__init__.py"),
    ],
)
def test_where_a_debuggee_has_an_editors_file(local: str, remote: str) -> None:
    assert Paths(roots=lambda: ROOTS).remote(local, LAYOUT) == remote


@pytest.mark.parametrize(
    ("named", "link"), [("/lib/outside/x.py", "shared/x.py"), ("/lib/single.py", "single.py")]
)
def test_a_file_that_a_symlink_in_a_package_leads_to_is_found_by_its_real_path(named: str, link: str) -> None:
    package = WORKING_DIR.rpartition("/")[2]
    links = {f"{package}/shared": ["/lib/outside"], f"{package}/single.py": ["/lib/single.py"]}
    paths = Paths(roots=lambda: {**ROOTS, **links})
    remote = f"{WORKING_DIR}/{link}"
    assert paths.local(remote) == f"/home/me/project/{link}"
    assert paths.remote(named, LAYOUT) == remote
    assert paths.local(remote) == named
    assert paths.remote("/lib/outsider.py", LAYOUT) == "/lib/outsider.py"
    # The editor's own mapping, and where the debuggee has found the file, are stronger.
    mapped = Paths([("/lib", "/opt/lib")], lambda: links).remote(named, LAYOUT)
    assert mapped == named.replace("/lib", "/opt/lib", 1)
    found = replace(LAYOUT, found={named: "/site-packages/x.py"})
    assert Paths(roots=lambda: links).remote(named, found) == "/site-packages/x.py"


@pytest.mark.parametrize(
    ("remote", "local"),
    [
        (f"{WORKING_DIR}/job.py", "/home/me/project/job.py"),
        (f"{TWO}/two/x.py", "/lib/two/x.py"),
        (f"{SESSION}/working_dir_files/_ray_pkg_zz/job.py", None),
        ("/usr/lib/python3/json/__init__.py", None),
        ("<string>", None),
    ],
)
def test_where_an_editor_has_a_debuggees_file(remote: str, local: str | None) -> None:
    assert Paths(roots=lambda: ROOTS).local(remote) == local


def test_a_file_is_shown_under_the_name_that_the_editor_gave_it() -> None:
    paths = Paths(roots=lambda: ROOTS)
    paths.remote("/data/project/job.py", LAYOUT)
    assert paths.local(f"{WORKING_DIR}/job.py") == "/data/project/job.py"
    assert paths.local(f"{WORKING_DIR}/other.py") == "/home/me/project/other.py"


@pytest.mark.parametrize(
    ("mapping", "local", "remote"),
    [
        (("/w", "."), "/w/job.py", f"{WORKING_DIR}/job.py"),
        (("/w/", "."), "/w/a/job.py", f"{WORKING_DIR}/a/job.py"),
        (("/w/one", "one"), "/w/one/x.py", f"{ONE}/one/x.py"),
        (("/w/src", "/opt/src"), "/w/src/x.py", "/opt/src/x.py"),
        (("/", "/"), "/opt/src/x.py", "/opt/src/x.py"),
    ],
)
def test_the_editors_own_mapping_works_both_ways(mapping: tuple[str, str], local: str, remote: str) -> None:
    assert Paths([mapping], lambda: ROOTS).remote(local, LAYOUT) == remote
    assert Paths([mapping], lambda: ROOTS).local(remote) == local


@pytest.mark.parametrize("opened", ["/home/me", "/", "/home/me/project/src"])
@pytest.mark.parametrize("named", ["src/job.py", "src/a/b.py"])
def test_a_mapping_of_another_folder_than_the_packed_one_takes_nothing_away(opened: str, named: str) -> None:
    paths = Paths([(opened, ".")], lambda: ROOTS)
    local, remote = f"/home/me/project/{named}", f"{WORKING_DIR}/{named}"
    assert paths.local(remote) == local
    assert paths.remote(local, LAYOUT) == remote
    # What was packed from elsewhere still is the mapping's.
    assert Paths([("/elsewhere", ".")], lambda: ROOTS).local(remote) == f"/elsewhere/{named}"


def test_of_shared_files_a_debuggee_has_its_own_and_what_python_opened(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    for file in ("project/there.py", "project/page.html", "id_rsa", "library.py"):
        (tmp_path / file).touch()
    (tmp_path / "link").symlink_to("project")
    (project / "key").symlink_to(tmp_path / "id_rsa")
    (project / "key.py").symlink_to(tmp_path / "id_rsa")
    (project / "linked.py").symlink_to(tmp_path / "library.py")
    paths = Paths(roots=lambda: {"_ray_pkg_aa": [str(project)]}, shared=True)
    for name in ("there.py", "page.html", "linked.py"):
        assert paths.local(f"{WORKING_DIR}/{name}") == str(project / name)
    for name in ("gone.py", "key", "key.py"):
        assert paths.local(f"{WORKING_DIR}/{name}") is None
    for path in (project / "there.py", tmp_path / "library.py"):
        assert paths.local(str(path)) == str(path)
    for path in (tmp_path / "id_rsa", Path("/etc/passwd")):
        assert paths.local(str(path)) is None
    assert paths.remote(str(tmp_path / "link" / "there.py"), LAYOUT) == f"{WORKING_DIR}/there.py"
    assert paths.remote("/no/such.py", LAYOUT) == "/no/such.py"


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(
    "path",
    [
        *("{package}/../../key.py", "{package}/a/../../../key.py", "{package}/./../key.py"),
        *("{package}//../key.py", "{package}/..", "{package}/job.py\0", "/opt/src/../../key.py"),
        *("//{package}/job.py", "../key.py", ""),
    ],
)
def test_a_debuggee_names_no_file_above_a_mapped_folder(tmp_path: Path, path: str, shared: bool) -> None:
    (tmp_path / "key.py").touch()
    project = tmp_path / "project"
    (project / "a").mkdir(parents=True)
    (project / "job.py").touch()
    paths = Paths(
        [(str(project), "."), (str(project), "/opt/src")],
        lambda: {"_ray_pkg_aa": [str(project)], "..": [str(project)]},
        shared=shared,
    )
    assert paths.local(path.format(package=WORKING_DIR)) is None
    assert paths.local(path.format(package=f"{SESSION}/working_dir_files/..")) is None


@pytest.mark.parametrize("folders", [{1: []}, {"/x": "abc"}, {"/x": [1, None]}, {"/x": None}, {}])
def test_a_layout_of_nonsense_is_none(folders: Any) -> None:
    assert Layout.of(folders).modules == {}


def test_a_files_hash_is_none_where_it_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    assert sha256_of(str(tmp_path / "a")) == sha256().hexdigest()
    assert (sha256_of(str(tmp_path)), sha256_of(str(tmp_path / "b")), sha256_of("\0")) == (None, None, None)


# --- lines ---------------------------------------------------------------------------------------

SOURCE = '''\
"""Text."""

import os


def work(x):
    # why
    y = [
        x,
        1,  # a comment

    ]

    return call(
        y,
    )
    # the end


class C:
    """Text."""

    def m(self):
        pass


value = 1
'''


def lines_of(folder: Path, text: str) -> Lines | None:
    (folder / "source.py").write_text(text)
    document = json.loads(sources.line_table(str(folder / "source.py")))
    return Lines.read(document["lines"])


def test_a_breakpoint_goes_to_the_nearest_line_with_code_of_its_function(tmp_path: Path) -> None:
    lines = lines_of(tmp_path, SOURCE)
    assert lines is not None
    nearest = {3: 3, 4: 6, 6: 6, 7: 8, 8: 8, 9: 9, 11: 8, 12: 8, 13: 14, 14: 14, 17: None, 99: None}
    assert {line: lines.nearest(line) for line in nearest} == nearest


@pytest.mark.parametrize("text", ["def (", "\0", "(" * 10_000, "x = 1\n  y = 2\n"])
def test_what_is_not_python_has_no_lines(tmp_path: Path, text: str) -> None:
    assert lines_of(tmp_path, text) is None


def test_a_source_that_is_long_or_nested_deeply_has_none_and_costs_little(tmp_path: Path) -> None:
    tracemalloc.start()
    for text in (f"x = [{'1,' * 500_000}]", "(" * 100_000):
        assert lines_of(tmp_path, text) is None
    assert tracemalloc.get_traced_memory()[1] < 32 * 1024 * 1024
    tracemalloc.stop()
    assert lines_of(tmp_path, "x = 1\n") is not None


def test_which_statements_are_spread_over_lines_and_where_functions_end(tmp_path: Path) -> None:
    text = """\
@decorated(
    1,
)
async def outer(
    a,
):
    x = (
        1
    )

    def inner(): return [
        2,
    ]
    # a comment
    if (
        x
    ):
        return x[
            1:
        ]
class A:
    def method(self): pass
"""
    lines = lines_of(tmp_path, text)
    assert lines is not None
    assert lines.statements == ((7, 9), (18, 20))
    assert set(lines.functions) == {(4, 20), (11, 13), (22, 22)}


NO_LINES: dict[str, Any] = {"statements": [], "functions": [], "indents": []}
ODD: list[Any] = [["1"], [[1]], [-1], [10**30], [True], {}]


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {"code": [1], "statements": [], "functions": []},
        *({**NO_LINES, "code": code} for code in ODD),
    ],
)
def test_a_table_of_nonsense_is_none(document: Any) -> None:
    assert Lines.read(document) is None


def test_a_table_that_does_not_fit_together_harms_nobody() -> None:
    lines = Lines.read({"code": [9, 50], "statements": [3, 1, 7], "functions": [5, 2], "indents": []})
    assert lines is not None
    assert [lines.nearest(line) for line in (1, 5, 9, 99)] == [9, 9, 9, None]


def test_the_nearest_line_costs_little_in_a_table_of_many_lines_and_functions() -> None:
    many = range(1, 30_001)
    nested = [number for first in many for number in (first, 100_000)]
    numbers = {"code": [*many], "statements": [], "functions": nested, "indents": []}
    lines = Lines.read({**numbers, "code": [at + 40_000 for at in many]})
    beside = Lines.read({**numbers, "functions": [at for first in many for at in (first, first)]})
    assert lines is not None and beside is not None
    began = time.process_time()
    assert lines.nearest(1) is None  # every line with code is in a function
    assert beside.nearest(0) == 1
    assert time.process_time() - began < 5


# --- what an editor asked for ------------------------------------------------------------------


def test_a_breakpoint_keeps_its_number_and_is_verified_where_any_debuggee_has_it() -> None:
    desired = Desired()
    first, second = desired.replace("/a.py", [{"line": 1}, {"line": 2}])
    assert [b.document()["verified"] for b in (first, second)] == [False, False]
    first.results["w1"] = Result(False, 1, "no such file")
    assert first.document()["message"] == "no such file"
    first.results["w2"] = Result(True, 3, "moved to line 3")
    assert first.document() == {
        "id": first.id,
        "line": 3,
        "source": {"path": "/a.py"},
        "verified": True,
        "message": "moved to line 3",
    }
    # A debuggee that ended is no reason to be verified.
    desired.forget("w2")
    assert first.document()["verified"] is False
    (replaced,) = desired.replace("/a.py", [{"line": 2, "condition": "x"}])
    assert (replaced.id, replaced.spec) == (second.id, {"line": 2, "condition": "x"})
    assert desired.replace("/a.py", []) == []
    assert desired.files == {}


# --- messages ------------------------------------------------------------------------------------


def outward(body: dict[str, Any]) -> dict[str, Any]:
    def source(place: dict[str, Any]) -> None:
        place["path"] = "local " + str(place.get("path"))

    numbers = {"frame": 100, "variables": 200}
    return translation.outward(body, lambda kind, inner: inner + numbers.get(kind, 300), source)


def test_numbers_and_paths_are_translated_wherever_they_stand() -> None:
    assert outward(
        {
            "stackFrames": [{"id": 1, "source": {"path": "/a", "sourceReference": 2}}],
            "targets": [{"id": 3}, {"label": "no number"}],
            "variables": [{"variablesReference": 0}, {"variablesReference": 4, "more": [{"frameId": 5}]}],
            "id": 6,
            "unknown": {"threadId": 7, "source": "text"},
        }
    ) == {
        "stackFrames": [{"id": 101, "source": {"path": "local /a", "sourceReference": 302}}],
        "targets": [{"id": 303}, {"label": "no number"}],
        "variables": [{"variablesReference": 0}, {"variablesReference": 204, "more": [{"frameId": 105}]}],
        "id": 6,
        "unknown": {"threadId": 307, "source": "text"},
    }


def test_a_request_names_its_owners_and_gets_their_numbers_wherever_they_stand() -> None:
    ids = Ids()
    ids.outer("b", "frame", 1)
    thread, frame = ids.outer("a", "thread", 5), ids.outer("a", "frame", 7)
    text, target = ids.outer("a", "source", 8), ids.outer("b", "target", 9)
    numbers = {"variablesReference": 0, "line": thread}
    outer_source, inner_source = ({"path": "/a.py", "sourceReference": number} for number in (text, 8))
    arguments = {**numbers, "threadId": thread, "frameId": frame, "source": outer_source}
    inner = {**numbers, "threadId": 5, "frameId": 7, "source": inner_source}
    assert translation.inward(arguments, ids.inner) == ({"a"}, inner)
    assert arguments["source"] == {"path": "/a.py", "sourceReference": text}  # the editor's own are kept
    assert translation.inward({"threadId": thread, "targetId": target}, ids.inner)[0] == {"a", "b"}
    assert translation.inward({"source": "text"}, ids.inner) == (set(), {"source": "text"})
    with pytest.raises(UnknownId):
        translation.inward({"source": {"sourceReference": frame}}, ids.inner)


def test_what_is_nested_deeply_is_translated_without_recursion() -> None:
    body: dict[str, Any] = {"threadId": 1}
    for _ in range(5000):
        body = {"more": [body]}
    inner = outward(body)
    while "more" in inner:
        inner = inner["more"][0]
    assert inner == {"threadId": 301}
