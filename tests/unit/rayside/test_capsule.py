"""Tests capsules: what a failure leaves, how it is opened, and that opening one runs nothing."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import pickle
import sys
import threading
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from rayside import capsule_file, replay
from rayside.console import Console
from rayside.errors import CapsuleUnreadable, CommandFailed, InvalidArgument, UnsupportedPython
from rayside.relay_actor.failure_store import (
    DOCUMENTS,
    END,
    PIECE,
    ROWS,
    capsule_in,
    documents_in,
    main,
    rows,
)
from rayside.verbs import recorded_failures as verb
from rayside.worker import calls, capsule, capsule_inputs, failures
from rayside.worker.debug_config import Config
from tests.patience import PATIENCE

ABOUT = {
    **{"id": "20260102-030405-abcdef", "when": "2026-01-02T03:04:05Z", "task": "divide", "job": "01000000"},
    **{"submission": "main-123456", "user": "ann", "node": "10.0.0.4", "node_id": "", "ray": "2.60.0"},
}


class Pickler(pickle.Pickler):
    def reducer_override(self, part: Any) -> Any:
        return NotImplemented


class Reference:
    """Stands for Ray's ObjectRef, and for a handle."""


@pytest.fixture(autouse=True)
def ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Provides what of Ray is used to pickle: this environment has none."""
    module, actor = ModuleType("ray"), ModuleType("ray.actor")
    context = SimpleNamespace(runtime_env={"env_vars": {"API_TOKEN": "tell-nobody", "N": "3"}})
    vars(module).update(
        ObjectRef=Reference,
        cloudpickle=SimpleNamespace(CloudPickler=Pickler),
        actor=actor,
        get_runtime_context=lambda: context,
    )
    vars(actor).update(ActorHandle=Reference)
    monkeypatch.setitem(sys.modules, "ray", module)
    monkeypatch.setitem(sys.modules, "ray.actor", actor)


def divide(rows: list[Any], by: int, password: str = "", **more: Any) -> float:
    total = sum(len(str(row)) for row in rows)
    try:
        return total / by
    except ZeroDivisionError as error:
        raise ValueError(f"by {by}") from error


def failed(function: Callable[..., Any], *arguments: Any, **named: Any) -> tuple[Any, Exception]:
    call = SimpleNamespace(
        function=function, executed=function, arguments=arguments, named=named, serialized=None
    )
    try:
        function(*arguments, **named)
    except Exception as error:
        return call, error
    raise AssertionError("it did not fail")


def content(*arguments: Any, masked: tuple[str, str] = ("", ""), **named: Any) -> bytes:
    made, text = capsule.made(*failed(divide, *arguments, **named), ABOUT, masked)
    assert text.startswith("ValueError: by")
    return made


def opened(*arguments: Any, **named: Any) -> capsule_file.Capsule:
    return capsule_file.read(content(*arguments, **named), "a.capsule")


def values(variables: tuple[capsule_file.Variable, ...]) -> dict[str, str]:
    return {each.name: each.value for each in variables}


def test_frames_and_variables_of_each_exception_are_in_it() -> None:
    found = opened([1, {"deep": [2]}], 0)
    assert [(each.type, each.how) for each in found.errors] == [
        ("ValueError", ""),
        ("ZeroDivisionError", "cause"),
    ]
    frame = found.errors[0].frames[0]
    assert frame.function.endswith("divide") and frame.file == __file__
    assert frame.source.splitlines()[frame.line - 1].strip() == 'raise ValueError(f"by {by}") from error'
    assert values(frame.locals)["total"].startswith("14")
    deep = frame.locals[0].items[1].items[0]
    assert (deep.name, deep.value) == ("deep", "[2]  (size 1)")
    assert found.whose == "job main-123456 by user ann from node 10.0.0.4"
    assert [(each.name, each.keyword, each.as_left) for each in found.inputs] == [
        ("rows", "", True),
        ("by", "", True),
    ]
    assert pickle.loads(found.members[found.inputs[0].file]) == [1, {"deep": [2]}]


def test_no_secret_is_in_it() -> None:
    raw = content([{"api_token": "tell-nobody-1"}], 0, password="correct horse", note="has correct horse")
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    texts = b"".join(data for name, data in members.items() if not name.startswith("sources/"))
    assert b"correct horse" not in texts and b"tell-nobody" not in texts
    # What is known is masked in the texts of files, too.
    assert all(b"correct horse" not in data for data in members.values())
    found = capsule_file.read(raw, "a")
    assert values(found.errors[0].frames[0].locals)["password"] == "<redacted>"
    assert found.left_out == [
        "rows: it has a secret's value in it",
        "password: its name is a secret's",
        "note: it has a secret's value in it",
    ]


def test_the_settings_of_what_is_masked_hold() -> None:
    raw = content(["DE12 3456"], 0, masked=("*rows*", ""))
    assert values(capsule_file.read(raw, "a").errors[0].frames[0].locals)["rows"] == "<redacted>"
    raw = content(["x"], 0, masked=("none", ""), password="correct horse")
    assert "correct horse" in values(capsule_file.read(raw, "a").errors[0].frames[0].locals)["password"]


def test_an_input_that_is_too_long_or_nothing_elsewhere_is_left_out() -> None:
    class Endless(bytes):
        def __reduce__(self) -> Any:
            return bytes, (bytes(capsule_inputs.MOST + 1),)

    noise = bytes(range(256)) * 4  # fits
    found = opened([noise], 0, long=Endless(), reference=Reference(), inner=lambda: 1)
    assert [text.partition(":")[0] for text in found.left_out] == ["long", "reference", "inner"]
    assert found.left_out[0].endswith("it is longer than 8 MiB")
    assert "which is nothing without its cluster" in found.left_out[1]
    assert "it can't be pickled" in found.left_out[2]


class FourGib:
    def __len__(self) -> int:
        return 4 * 1024**3


def test_4_gib_that_ray_holds_are_not_even_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Any] = []

    def deserialize_objects(objects: list[Any], references: list[Any]) -> list[Any]:
        read.append(objects[0])
        return [pickle.loads(objects[0][0])]

    worker = ModuleType("ray._private.worker")
    vars(worker)["global_worker"] = SimpleNamespace(deserialize_objects=deserialize_objects)
    monkeypatch.setitem(sys.modules, "ray._private", ModuleType("ray._private"))
    monkeypatch.setitem(sys.modules, "ray._private.worker", worker)
    call, error = failed(divide, ["changed"], by=0)
    held = [pickle.dumps(each) for each in (b"__RAY_DUMMY__", "by", 0)]
    call.serialized = ([(held[0],), (FourGib(),), (held[1],), (held[2],)], [None] * 4)
    found = capsule_file.read(capsule.made(call, error, ABOUT, ("", ""))[0], "a")
    assert found.left_out == ["rows: it is longer than 8 MiB"]
    assert [each.as_left for each in found.inputs] == [False, False]
    assert pickle.loads(found.members[found.inputs[1].file]) == 0
    assert all(not isinstance(each[0], FourGib) for each in read)


def test_what_does_not_fit_in_the_file_is_left_out_the_longest_first() -> None:
    import random

    noise = random.Random(1)
    found = opened([noise.randbytes(700_000)], 0, second=noise.randbytes(600_000), third=b"short")
    assert found.left_out == ["rows: the capsule would be longer than 1024 KiB"]
    assert len(content([noise.randbytes(900_000)], 0)) < capsule.MOST_BYTES


def test_a_repr_that_raises_is_shown_as_that() -> None:
    class Odd:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    shown = values(opened([], 0, odd=Odd()).errors[0].frames[0].locals)
    assert "whose repr raises" in shown["more"]


# --- files that anybody may have made ----------------------------------------------------


def zipped(**members: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return stream.getvalue()


def with_document(**changed: Any) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content([1], 0))) as archive:
        document = json.loads(archive.read("capsule.json"))
    return zipped(**{"capsule.json": json.dumps({**document, **changed}).encode()})


class Creates:
    """Makes a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return Path.touch, (self.file,)


def deep(levels: int) -> Any:
    row: dict[str, Any] = {"name": "x", "type": "", "value": ""}
    for _ in range(levels):
        row = {**row, "items": [row]}
    return [{"type": "E", "text": "", "how": "", "frames": [frame(locals=[row])]}]


def frame(**changed: Any) -> dict[str, Any]:
    return {"function": "f", "file": "f.py", "line": 1, "source": "", "locals": [], "globals": [], **changed}


HOSTILE: dict[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "no zip": lambda: b"PK is no zip file",
    "cut off": lambda: content([1], 0)[:-700],
    "cut in the middle": lambda: content([1], 0)[:400] + content([1], 0)[500:],
    "too long": lambda: bytes(capsule.MOST_BYTES + 1),
    "no document": lambda: zipped(**{"function.pickle": b""}),
    "a name that leads elsewhere": lambda: zipped(**{"capsule.json": b"{}", "../../etc/passwd": b""}),
    "an absolute name": lambda: zipped(**{"capsule.json": b"{}", "/etc/passwd": b""}),
    "many files": lambda: zipped(**{f"inputs/{n}.pickle": b"" for n in range(2_001)}),
    "a bomb": lambda: zipped(**{"capsule.json": b"{}", "sources/0.py": bytes(20 * 1024 * 1024)}),
    "several bombs": lambda: zipped(**{f"sources/{n}.py": bytes(6 * 1024 * 1024) for n in range(4)}),
    "no JSON": lambda: zipped(**{"capsule.json": b"\xff\xfe{"}),
    "deep JSON": lambda: zipped(**{"capsule.json": b"[" * 200_000}),
    "a list": lambda: zipped(**{"capsule.json": b"[]"}),
    "another version": lambda: with_document(format=2),
    "no error": lambda: with_document(errors=[]),
    "errors of another form": lambda: with_document(errors=[7]),
    "a line that is none": lambda: with_document(
        errors=[{"type": "", "text": "", "how": "", "frames": [frame(line=1e400)]}]
    ),
    "deep variables": lambda: with_document(errors=deep(9)),
}


@pytest.mark.parametrize("made", HOSTILE.values(), ids=HOSTILE)
def test_a_file_that_is_no_whole_capsule_is_refused(made: Callable[[], bytes], tmp_path: Path) -> None:
    file = tmp_path / "a.capsule"
    file.write_bytes(made())
    with pytest.raises(CapsuleUnreadable):
        capsule_file.open_file(file)


def test_a_folder_or_nothing_is_refused(tmp_path: Path) -> None:
    for file in (tmp_path, tmp_path / "none"):
        with pytest.raises(CapsuleUnreadable):
            capsule_file.open_file(file)


def test_what_a_terminal_would_obey_is_visible() -> None:
    row = {"name": "x\n\x1b[2J", "type": "", "value": "\x1b]0;title\x07"}
    errors = [{"type": "E\x1b[31m", "text": "a\nb", "how": "", "frames": [frame(locals=[row])]}]
    found = capsule_file.read(with_document(errors=errors), "a")
    variable = found.errors[0].frames[0].locals[0]
    assert "\x1b" not in variable.name + variable.value + found.errors[0].type
    assert "\n" not in variable.name + found.errors[0].text


def bombed(tmp_path: Path, **about: str) -> tuple[Path, Path]:
    """Returns a capsule whose pickles make a file, and that file."""
    created = tmp_path / "created"
    with zipfile.ZipFile(io.BytesIO(content([1], 0))) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    document = {**json.loads(members["capsule.json"]), **about}
    bomb = pickle.dumps(Creates(created))
    members = {name: bomb if name.endswith(".pickle") else data for name, data in members.items()}
    file = tmp_path / "a.capsule"
    file.write_bytes(zipped(**{**members, "capsule.json": json.dumps(document).encode()}))
    return file, created


def no_cluster() -> Any:
    raise AssertionError("a cluster was asked for")


def test_opening_one_runs_nothing_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, created = bombed(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    typed = iter(["where", "locals", "p rows", "quit"])
    console = Console()
    monkeypatch.setattr(Console, "ask", lambda self, prompt: next(typed))
    assert replay.replay(str(file), console, replay.Asked(), no_cluster) == 0
    assert not created.exists()
    pickle.loads(pickle.dumps(Creates(created)))
    assert created.exists()  # so it is one that would


def test_to_run_it_somebody_has_to_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, created = bombed(tmp_path)
    with pytest.raises(InvalidArgument, match="this runs pickled code of job main-123456 by user ann"):
        replay.replay(str(file), Console(), replay.Asked(run=True), no_cluster)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    asked: list[str] = []

    def ask(self: Console, prompt: str) -> str:
        asked.append(prompt)
        return ""

    monkeypatch.setattr(Console, "ask", ask)
    assert replay.replay(str(file), Console(), replay.Asked(run=True), no_cluster) == 0
    assert asked == [
        "this runs pickled code of job main-123456 by user ann from node 10.0.0.4, recorded on"
        " 2026-01-02T03:04:05Z: run it? [y/N] "
    ]
    assert "Nothing was run." in capsys.readouterr().out
    assert not created.exists()


def test_another_python_does_not_run_it(tmp_path: Path) -> None:
    file, _ = bombed(tmp_path, python="3.4.1")
    with pytest.raises(UnsupportedPython, match=r"recorded by Python 3\.4, and this is Python 3\."):
        replay.replay(str(file), Console(), replay.Asked(run=True, yes=True), no_cluster)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (replay.Asked(yes=True), "--yes goes with --run"),
        (replay.Asked(breaks=("a.py:1",)), "--break goes with --run"),
        (replay.Asked(submit=True, breaks=("a.py:1",)), "--break goes with --run"),
        (replay.Asked(run=True, submit=True), "--run is here, --submit on a cluster"),
        (replay.Asked(submit=True, listen="0"), "--listen is for what runs here"),
        (replay.Asked(listen="http"), "--listen http is no port"),
    ],
)
def test_options_that_do_not_go_together(asked: replay.Asked, why: str) -> None:
    with pytest.raises(InvalidArgument, match=why):
        replay.replay("none", Console(), asked, no_cluster)


# --- on the head -------------------------------------------------------------------------


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> dict[bytes, bytes]:
    """Provides Ray's key-value store."""
    kept: dict[bytes, bytes] = {}
    module = ModuleType("ray.experimental.internal_kv")
    vars(module).update(
        _internal_kv_put=lambda key, value, namespace: kept.__setitem__(key, value),
        _internal_kv_get=lambda key, namespace: kept.get(key),
        _internal_kv_del=lambda key, namespace: kept.pop(key, None),
        _internal_kv_list=lambda prefix, namespace: [key for key in kept if key.startswith(prefix)],
    )
    monkeypatch.setitem(sys.modules, "ray.experimental", ModuleType("ray.experimental"))
    monkeypatch.setitem(sys.modules, "ray.experimental.internal_kv", module)
    return kept


def test_the_newest_are_kept_within_bounds(store: dict[bytes, bytes]) -> None:
    for number in range(failures.MOST + 3):
        failures.keep(f"20260102-030405-{number:06x}", b"x", {"task": str(number)})
    assert len(failures.kept()) == failures.MOST and len(store) == 2 * failures.MOST
    assert failures.rows()[0]["task"] == "3"
    failures.keep("20260102-030406-000000", bytes(failures.MOST_BYTES), {})
    assert failures.kept() == [("20260102-030406-000000", failures.MOST_BYTES)]


def test_the_job_prints_what_is_kept(
    store: dict[bytes, bytes], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.modules["ray"], "init", lambda **_: None, raising=False)
    name, raw = ABOUT["id"], content([1], 0)
    row = {name: ABOUT[name] for name in ("job", "submission", "user", "task", "node", "when")}
    failures.keep(name, raw, {**row, "error": "ValueError: by 0"})
    store[failures.LISTED + b"20260102-030405-ffffff/4"] = b"{}"
    store[failures.KEPT + b"20260102-030405-ffffff"] = b"nope"
    main([name])
    assert capsule_in(capsys.readouterr().out) == raw
    main(["20990102-030405-abcdef"])
    assert capsule_in(capsys.readouterr().out) == b""
    main([DOCUMENTS])
    [document] = documents_in(capsys.readouterr().out)
    assert document["id"] == name and document["errors"][0]["type"] == "ValueError"
    del store[failures.LISTED + b"20260102-030405-ffffff/4"]
    main([])
    assert rows(capsys.readouterr().out) == [
        {**row, "error": "ValueError: by 0", "id": name, "bytes": len(raw)}
    ]


def test_documents_that_unpack_to_too_much_are_refused() -> None:
    packed = zlib.compress(b"[" + bytes(10 * 1024 * 1024))
    text = f"{PIECE}{base64.b64encode(packed).decode()}\n{END}{hashlib.sha256(packed).hexdigest()}\n"
    with pytest.raises(ValueError):
        documents_in(text)


def test_one_place_in_a_process_leaves_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "_places", [])
    kept: list[bytes] = []
    said: list[str] = []
    monkeypatch.setattr(failures, "keep", lambda name, content, row: kept.append(content))
    monkeypatch.setattr(failures, "say", said.append)
    monkeypatch.setattr(failures, "_about", lambda: dict(ABOUT))
    for _ in range(5):
        call, error = failed(divide, [1], 0)
        failures.record(call, error, ("", ""))
    assert len(kept) == failures.MOST_OF_A_PLACE
    assert said[0] == "divide failed, and nobody debugged it: `rayside failures --get 20260102-030405-abcdef`"


def test_what_goes_wrong_in_a_record_never_takes_the_place_of_the_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken() -> Any:
        raise KeyError("Ray has changed")

    monkeypatch.setattr(failures, "_places", [])
    monkeypatch.setattr(failures, "_about", broken)
    failures.record(*failed(divide, [1], 0), ("", ""))


def test_a_store_that_fails_does_not_fail_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    said: list[str] = []
    monkeypatch.setattr(failures, "_places", [])
    monkeypatch.setattr(failures, "keep", full)
    monkeypatch.setattr(failures, "say", said.append)
    monkeypatch.setattr(failures, "_about", lambda: dict(ABOUT))
    call, error = failed(divide, [1], 0)
    failures.record(call, error, ("", ""))
    assert said == ["divide failed, and was not recorded: OSError: [Errno 28] No space left on device"]


@pytest.mark.parametrize(
    ("unattended", "comes", "seen"),
    [
        (failures.Unattended(), True, ["stood"]),
        (failures.Unattended(), False, ["stood"]),
        (failures.Unattended(patience=PATIENCE, are_recorded=True), True, ["stood"]),
        (failures.Unattended(are_recorded=True), False, ["recorded", "stood"]),
        (failures.Unattended(stops=False, are_recorded=True), False, ["recorded"]),
    ],
)
def test_a_failure_is_recorded_where_no_debugger_comes_in_time(
    unattended: failures.Unattended, comes: bool, seen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []
    waits: list[Any] = []

    def wait_for_attach(cancel: Any) -> None:
        """Waits as pydevd does, until `cancel` is set, the first time where no debugger comes."""
        waits.append(cancel)
        assert comes or len(waits) > 1 or not unattended.are_recorded or cancel.is_set()

    pydevd = SimpleNamespace(_wait_for_attach=wait_for_attach, _is_attached=lambda: comes or len(waits) > 1)
    monkeypatch.setitem(sys.modules, "pydevd", pydevd)
    monkeypatch.setattr(calls, "_unattended", unattended)
    monkeypatch.setattr(calls, "record", lambda call, error, masked: happened.append("recorded"))

    def stand_still(error: BaseException, record: Callable[[], None], cancelled: threading.Event) -> None:
        unattended.wait(record, cancelled)
        happened.append("stood")

    monkeypatch.setattr(calls, "_stand_still", stand_still)
    assert not calls.Call(divide, (), {}).stop(ValueError("no"))
    assert happened == seen


def test_how_long_a_failure_waits_before_it_is_recorded() -> None:
    config = Config(attach_timeout=7.0, record_failures=True, masked_names="*iban*", masked_values="[0-9]+")
    recorded = failures.Unattended(True, 7.0, True, ("*iban*", "[0-9]+"))
    assert failures.Unattended.of(config, stops=True) == recorded


def test_what_the_job_prints_is_read_whole_or_not_at_all() -> None:
    row = {name: "x" for name in ("id", "job", "submission", "user", "task", "error", "node", "when")}
    text = f"a log line\n{ROWS}{json.dumps([{**row, 'bytes': 3}])}\n"
    assert rows(text) == [{**row, "bytes": 3}]
    for wrong in ("", f"{ROWS}[1]", f"{ROWS}{json.dumps([row])}", f"{ROWS}" + "[" * 100_000):
        with pytest.raises(ValueError):
            rows(wrong)
    assert capsule_in(f"{END}\n") == b""
    for wrong in ("", f"{PIECE}YWJj\n", f"{PIECE}YWJj\n{END}{'0' * 64}\n"):
        with pytest.raises(ValueError):
            capsule_in(wrong)


# --- the verb ----------------------------------------------------------------------------


def access(user: str = "ann") -> Any:
    return SimpleNamespace(identity=SimpleNamespace(user=user))


def printed(raw: bytes) -> str:
    return f"{PIECE}{base64.b64encode(raw).decode()}\n{END}{hashlib.sha256(raw).hexdigest()}\n"


def test_failures_are_listed_for_their_user(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {name: ABOUT[name] for name in ("id", "job", "submission", "task", "node", "when")}
    both = [{**row, "user": user, "error": "E", "bytes": 1} for user in ("ann", "bob")]
    monkeypatch.setattr(verb, "_printed", lambda access, name: f"{ROWS}{json.dumps(both)}")
    [listed] = verb.listed(access(), user="ann")
    assert listed == {
        **{"id": row["id"], "job": "main-123456", "task": "divide", "error": "E", "node": "10.0.0.4"},
        **{"when": row["when"], "bytes": 1, "user": "ann"},
    }
    assert [each["user"] for each in verb.listed(access(), job="01000000")] == ["ann", "bob"]
    assert verb.listed(access(), job="another") == []


@pytest.mark.parametrize("name", ["", "x; rm -rf /", "20260102-030405-ABCDEF", "--documents"])
def test_what_is_no_id_is_asked_of_nobody(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="no failure"):
        verb.failures(access(), Console(), get=name, to=str(tmp_path / "file"))


def test_a_disk_that_is_full_leaves_no_part_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = content([1], 0)
    monkeypatch.setattr(verb, "_printed", lambda access, name: printed(raw))
    file = tmp_path / "a.capsule"

    def full(descriptor: int, mode: str) -> Any:
        os.close(descriptor)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fdopen", full)
        with pytest.raises(InvalidArgument, match="can't be written: No space left on device"):
            verb.failures(access(), Console(), get=ABOUT["id"], to=str(file))
    assert list(tmp_path.iterdir()) == []
    verb.failures(access(), Console(), get=ABOUT["id"], to=str(file))
    assert file.read_bytes() == raw and file.stat().st_mode & 0o777 == 0o600
    with pytest.raises(InvalidArgument, match="is not overwritten"):
        verb.failures(access(), Console(), get=ABOUT["id"], to=str(file))


def test_an_answer_that_is_cut_off_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verb, "_printed", lambda access, name: printed(content([1], 0))[:-70])
    with pytest.raises(CommandFailed):
        verb.failures(access(), Console(), get=ABOUT["id"], to=str(tmp_path / "file"))
