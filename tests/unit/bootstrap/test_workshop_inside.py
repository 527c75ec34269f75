"""Tests what becomes of what a place's workspace answers, which may be anything."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bootstrap.errors import PodFailed
from bootstrap.labs.lesson import find, lessons
from bootstrap.settings import Settings
from bootstrap.steps.ray_cluster import PROGRESS
from bootstrap.targets.place import Place
from bootstrap.verbs import workshop_files
from bootstrap.workshop import ending, inside
from bootstrap.workshop.inside import Packed, packed
from rayside.console import Console
from rayside.errors import ClusterUnreachable, Forbidden, InvalidArgument, NotRunning
from tests.http_servers import answering, says
from tests.unit.scripted_objects import Objects, objects

LARGEST = 256 * 1024


def named(lab: str) -> Path:
    """Returns the folder of the lab that `--push` names."""
    return find(lab, lessons()).folder


@dataclass
class Pod:
    """A place whose kubectl is a program that prints this; None where it has no pod."""

    prints: str | None
    folder: Path
    asked: list[str] = field(default_factory=list)
    # As the API has them, besides its name.
    facts: dict[str, Any] = field(default_factory=dict)
    kube: Objects = field(default_factory=objects)

    def place(self) -> Place:
        pods = [] if self.prints is None else [{"metadata": {"name": "head"}, **self.facts}]
        self.kube.lists["/api/v1/namespaces/team/pods"] = pods
        instance = SimpleNamespace(name="rayside-place-001", ray_cluster="rayside-place-001")
        kubernetes = SimpleNamespace(kubectl=self._kubectl)
        return cast(Place, SimpleNamespace(instance=instance, kube=self.kube, kubernetes=kubernetes))

    def _kubectl(self, *words: str) -> list[str]:
        self.asked = [*words]
        # What is printed may be longer than a command may be.
        file = self.folder / "printed"
        file.write_text(self.prints or "")
        return ["cat", str(file)]


def answer(document: Any, folder: Path) -> Pod:
    return Pod(json.dumps(document), folder)


def test_all_labs_or_one_are_made_anew(tmp_path: Path) -> None:
    kept = {"name": "01-one", "folder": "/f", "kept": "/f/.kept/x"}
    pod = answer({"labs": [kept, {"name": "02-two", "folder": "/g", "kept": None}]}, tmp_path)
    rows = [{"lab": "01-one", "kept": "/f/.kept/x"}, {"lab": "02-two", "kept": ""}]
    assert inside.reset(pod.place(), "") == rows
    assert pod.asked[-4:] == ["lab", "--all", "--reset", "--json"]
    pod = answer({"folder": "/f", "kept": None}, tmp_path)
    assert inside.reset(pod.place(), "3; id") == [{"lab": "3; id", "kept": ""}]
    # What the teacher typed is a word of the command there, and no part of the shell's program.
    assert pod.asked[-4:] == ["lab", "3; id", "--reset", "--json"]
    assert "3; id" not in pod.asked[pod.asked.index("-c") + 1]


@pytest.mark.parametrize(
    "prints",
    [
        *("", "no JSON", "[]", "3", '{"labs": 3}', '{"labs": [3]}'),
        pytest.param("[" * 100_000, id="deep"),
        pytest.param("1" * (LARGEST + 2000), id="long"),
    ],
)
def test_what_is_no_answer_is_said_and_that_there_is_no_pod(prints: str, tmp_path: Path) -> None:
    with pytest.raises(PodFailed, match="gives no answer, or none of a verb's"):
        inside.reset(Pod(prints, tmp_path).place(), "")
    with pytest.raises(NotRunning, match="has no workspace"):
        inside.reset(Pod(None, tmp_path).place(), "")


@pytest.mark.parametrize("verb", [lambda place: inside.reset(place, ""), inside.collect, inside.forget])
def test_that_its_node_does_not_answer_is_said(verb: Callable[[Place], Any], tmp_path: Path) -> None:
    conditions = [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "False"}]
    containers = [{"name": "workspace", "ready": True, "state": {"running": {}}}]
    status = {"conditions": conditions, "containerStatuses": containers}
    facts = {"spec": {"nodeName": "node-7", "containers": [{"name": "workspace"}]}, "status": status}
    with pytest.raises(PodFailed, match=r"no answer.*: head: its node node-7 does not answer"):
        verb(Pod("", tmp_path, facts=facts).place())


def test_what_is_said_there_is_one_line_and_bounded(tmp_path: Path) -> None:
    error = {"id": "not-running", "message": "a\nb\x1b[31m" + "c" * 1000, "hint": {"no": "text"}}
    with pytest.raises(PodFailed) as failure:
        inside.reset(answer({"error": error}, tmp_path).place(), "")
    assert r"a\nb\x1b[31mccc" in failure.value.message
    assert len(failure.value.message) < 400
    # A hint of theirs would read as ours.
    assert failure.value.hint == "look into the place, or run it again; ./invokew labs lists the labs"
    error = {"id": "invalid-argument", "message": "there is no lab 99", "hint": "./invokew labs lists them"}
    with pytest.raises(InvalidArgument, match="there is no lab 99"):
        inside.reset(answer({"error": error}, tmp_path).place(), "99")


@pytest.mark.timeout(20)
@pytest.mark.parametrize("verb", ["reset", "forget", "collect", "push", "until"])
def test_a_lacking_right_is_named(verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pod = Pod("{}", tmp_path, kube=objects(lacking={"create pods/exec in team"}))
    place = pod.place()
    names = ["place-001", "place-002"]
    base = SimpleNamespace(instance=SimpleNamespace(name="rayside"))
    there = SimpleNamespace(base=base, recorded=lambda: names, place=lambda _: place, door=None)
    there.require = lambda: None
    monkeypatch.setattr(workshop_files, "workshop_of", lambda _: there)
    monkeypatch.setattr(workshop_files, "alone_with", lambda *_: contextlib.nullcontext())
    console, folder = Console(), tmp_path / "files"
    verbs: dict[str, Callable[[], object]] = {
        "reset": lambda: inside.reset(place, ""),
        "forget": lambda: inside.forget(place),
        "collect": lambda: workshop_files.collect(Settings(), console, folder),
        "push": lambda: workshop_files.push(Settings(), console, "01-breakpoint"),
        # It says so now, and not when it ends.
        "until": lambda: workshop_files.until(Settings(), console, "2099-01-01T00:00", folder),
    }
    monkeypatch.setattr(ending, "LONGEST", timedelta(days=100_000))
    with pytest.raises(Forbidden, match="create pods/exec in namespace team") as told:
        verbs[verb]()
    assert 'resources: ["pods/exec"], verbs: ["create"]' in told.value.hint
    assert pod.asked == []


def test_an_api_that_does_not_answer_either_hides_no_error(tmp_path: Path) -> None:
    pod = Pod("", tmp_path)
    place = pod.place()
    answers = iter([pod.kube.pods("")])

    def pods(selector: str) -> list[dict[str, Any]]:
        for found in answers:
            return found
        raise ClusterUnreachable("it does not answer", hint="wait")

    kube = SimpleNamespace(pods=pods, require=lambda *_: None)
    unreachable = SimpleNamespace(instance=place.instance, kube=kube, kubernetes=place.kubernetes)
    with pytest.raises(PodFailed, match="rayside-place-001 gives no answer"):
        inside.collect(cast(Place, unreachable))


def test_what_prints_or_reads_without_end_or_never_ends_is_ended() -> None:
    began, much = time.monotonic(), b"x" * 3_000_000
    endless = [sys.executable, "-c", "while True: print('x' * 1000)"]
    assert len(inside.bounded(endless, 60, 10_000)) == 10_001
    silent = [sys.executable, "-c", "import time; print('a', flush=True); time.sleep(60)"]
    assert inside.bounded(silent, 1, 10_000).strip() in (b"a", b"")
    assert inside.bounded(["sleep", "60"], 1, 100, much) == b""
    assert inside.bounded(["wc", "-c"], 60, 100, much).strip() == b"3000000"
    # Not to read it is no error.
    for _ in range(20):
        assert inside.bounded(["true"], 60, 100, much) == b""
    assert time.monotonic() - began < 60


# --- a lab that its teacher has changed ----------------------------------------------------


def test_a_changed_lab_is_packed_and_brought(tmp_path: Path) -> None:
    lab = packed(named("1"))
    assert lab == packed(named("01-breakpoint"))
    with tarfile.open(fileobj=io.BytesIO(lab.archive)) as archive:
        members = archive.getmembers()
    assert {"README.md", "lab.py", "main.py"} <= {member.name for member in members}
    assert {(member.uid, member.uname) for member in members} == {(0, "")}
    pod = answer({"name": "01-breakpoint", "updated": ["main.py"], "kept": ["answers.yaml"]}, tmp_path)
    files = inside.update(pod.place(), lab)
    assert files == {"updated": ["main.py"], "kept": ["answers.yaml"]}
    assert "--stdin" in pod.asked
    assert pod.asked[-3:] == ["lab", "01-breakpoint", "--json"]


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"updated": [], "kept": "x"},
        {"updated": ["no file of it"], "kept": []},
        {"updated": [{}], "kept": []},
        {"updated": [], "kept": [[]]},
    ],
)
def test_what_is_no_answer_to_a_changed_lab_is_said(document: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(PodFailed, match="gives no answer"):
        lab = Packed("01-breakpoint", b"x", frozenset({"main.py"}))
        inside.update(answer(document, tmp_path).place(), lab)


def test_there_is_no_other_lab() -> None:
    for name in ("99", "", "../labs/01-breakpoint", "breakpiont"):
        with pytest.raises(InvalidArgument, match="there is no lab"):
            packed(named(name))


def test_files_are_collected_or_said_to_be_none(tmp_path: Path) -> None:
    class Files(Pod):
        def _kubectl(self, *words: str) -> list[str]:
            return ["sh", "-c", self.prints or ""]

    whole = "printf '\\037\\213filesrayside: that is all'"
    assert inside.collect(Files(whole, tmp_path).place()) == b"\x1f\x8bfiles"
    for broken in ("printf '\\037\\213files'", "printf '\\037\\213filesrayside: that is al'", "echo no"):
        with pytest.raises(PodFailed, match="did not come whole"):
            inside.collect(Files(broken, tmp_path).place())
    with pytest.raises(PodFailed, match="more than 64 MiB"):
        inside.collect(Files("yes", tmp_path).place())


@pytest.mark.parametrize(
    ("told", "acted"),
    # A job ended after three seconds.
    [
        (None, 3),
        ('{"acted": 2000}', 3),
        ('{"acted": 5000}', 5),
        ("[]", None),
        ("{", None),
        ('{"acted": "x"}', None),
    ],
)
def test_what_is_done_in_a_place_the_editor_says(told: str | None, acted: int | None, tmp_path: Path) -> None:
    jobs = [
        *({"status": status, "end_time": None} for status in ("RUNNING", "PENDING")),
        *({"status": "SUCCEEDED", "end_time": 3000}, {"status": "STOPPED"}),
    ]

    def told_jobs(request: BaseHTTPRequestHandler) -> None:
        assert (request.path, request.headers["Authorization"]) == ("/api/jobs/", "Bearer the token")
        says(request, 200, json.dumps(jobs).encode(), Connection="close")

    progress, token = tmp_path / "progress", tmp_path / "token"
    token.write_text("the token\n")
    if told is not None:
        progress.write_text(told)
    # What an attendee has beside it is not imported.
    (tmp_path / "json.py").write_text("raise SystemExit('planted')")
    with answering(told_jobs) as port:
        program = (
            inside._LOOKS.replace("/opt/ray/bin/python", sys.executable)
            .replace("/run/ray/auth_token", str(token))
            .replace(PROGRESS, str(progress))
            .replace("127.0.0.1:8265", f"127.0.0.1:{port}")
        )
        # A company's proxy gets no token.
        proxied = {**os.environ, "http_proxy": "http://127.0.0.1:9"}
        done = subprocess.run(
            ["sh", "-c", program], cwd=tmp_path, env=proxied, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["acted"], document["jobs"]) == (acted, 2)
    assert abs(document["now"] - time.time()) < 60
