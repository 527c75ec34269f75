"""Tests that an exception is found in whichever form a program, or Ray, prints its traceback."""

from __future__ import annotations

import io
import runpy
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console
from rich.traceback import Traceback

from bootstrap.diagnosis.explain import findings
from bootstrap.diagnosis.finding import Finding
from bootstrap.diagnosis.ray_errors import last_raised, raised_in_task
from rayside.plain import printed
from tests.unit.diagnosed import job, of_log, only, seen, task

RICH = "import rich.traceback\nrich.traceback.install(show_locals=True)\n"
GROUP = """\
import asyncio
async def load(n):
    raise ValueError(f"shard {n} is broken")
async def main():
    async with asyncio.TaskGroup() as tasks:
        for n in (1, 2):
            tasks.create_task(load(n))
asyncio.run(main())
"""
NESTED = """\
def fail(error):
    raise error
try:
    fail(KeyError("a"))
except KeyError as error:
    first = error
inner = ExceptionGroup("inner", [first, TypeError("two\\nlines")])
fail(ExceptionGroup("outer", [inner, OSError(2, "no such")]))
"""
LOCAL = """\
def validate(row):
    class RowError(Exception):
        pass
    raise RowError(f"row {row} has no label")
validate(7)
"""
NAMED = """\
class 数据错误(Exception):
    pass
def check():
    raise 数据错误("第 3 行")
check()
"""
WORDLESS = """\
class Stop(Exception): ...
def train(): raise Stop
make = lambda: type("Odd", (Stop,), {"__qualname__": "<lambda>.<locals>.Odd"})
raise make()
"""
LONG = """\
def f():
    try:
        int("x")
    except ValueError as error:
        raise RuntimeError("one two three " * 9 + "end") from error
f()
"""
WORDS_OF_GROUP = "unhandled errors in a TaskGroup (2 sub-exceptions): "
SHARDS = f"{WORDS_OF_GROUP}ValueError: shard 1 is broken; ValueError: shard 2 is broken"
PARTS = "KeyError: 'a'; TypeError: two lines; FileNotFoundError: [Errno 2] no such"

needs_groups = pytest.mark.skipif(sys.version_info < (3, 11), reason="exception groups came with 3.11")


def run(folder: Path, text: str) -> Finding:
    """Runs a program, and returns what is found of the job that did."""
    (folder / "main.py").write_text(text)
    command = [sys.executable, "-X", "utf8", "main.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, encoding="utf8", check=False)
    assert done.returncode == 1
    return of_log(printed(done.stdout + done.stderr))


@pytest.mark.parametrize("head", ["", RICH], ids=["python", "rich"])
@pytest.mark.parametrize(
    ("text", "name", "why", "line"),
    [
        pytest.param(GROUP, "ExceptionGroup", SHARDS, "3, in load", marks=needs_groups),
        pytest.param(
            NESTED, "ExceptionGroup", f"outer (2 sub-exceptions): {PARTS}", "2, in fail", marks=needs_groups
        ),
        (LOCAL, "RowError", "row 7 has no label", "4, in validate"),
        (NAMED, "数据错误", "第 3 行", "4, in check"),
        (WORDLESS, "Odd", "it has no words of its own", "4"),
        (LONG, "RuntimeError", "one two three " * 9 + "end", "5, in f"),
    ],
)
def test_whatever_a_driver_raises_is_told_with_its_place(
    tmp_path: Path, head: str, text: str, name: str, why: str, line: str
) -> None:
    found = run(tmp_path, head + text)
    number, _, function = line.partition(",")
    place = f"{tmp_path}/main.py:{int(number) + head.count(chr(10))}{',' * bool(function)}{function}"
    assert (found.id, found.what) == ("driver-raised", f"job train-1 failed: the driver raised {name}")
    assert (found.why, found.where) == (why, place)


@pytest.mark.parametrize("head", ["", RICH], ids=["python", "rich"])
def test_the_words_with_which_a_program_ends_itself_are_the_reason(tmp_path: Path, head: str) -> None:
    found = run(tmp_path, f'{head}import sys\nprint("  starts")\nsys.exit("config: no key lr")')
    assert (found.id, found.why) == ("job-failed", "config: no key lr")


# --- what Ray prints of tasks ------------------------------------------------------------

GET = """\
  + Exception Group Traceback (most recent call last):
  |   File "/w/main.py", line 4, in <module>
  |     ray.get(load.remote())
  |   File "/opt/ray/lib/python3.11/site-packages/ray/_private/worker.py", line 1053, in get_objects
  |     raise value.as_instanceof_cause()
"""
# A worker prints it with a margin of its own, which Python 3.13 repeats for each line.
IN_TASK = """\
+ Exception Group Traceback (most recent call last):
  |   File "python/ray/_raylet.pyx", line 2205, in ray._raylet.execute_task
  |   File "/w/lib.py", line 12, in load
  |     asyncio.run(main())
  | ExceptionGroup: outer (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/w/lib.py", line 7, in read
    |     raise ValueError(n)
    | ValueError: shard 1
    +---------------- 2 ----------------
    | Exception Group Traceback (most recent call last):
    |   File "/w/other.py", line 9, in write
    |     raise ExceptionGroup("inner", [KeyError("a")])
    | ExceptionGroup: inner (1 sub-exception)
    +-+---------------- 1 ----------------
      | KeyError: 'a'
      +------------------------------------
"""
AGAIN = """\
  +-+---------------- 1 ----------------
    | ValueError: shard 1
    +---------------- 2 ----------------
    | ExceptionGroup: inner (1 sub-exception)
    +-+---------------- 1 ----------------
      | KeyError: 'a'
      +------------------------------------
"""
DUAL = "  | ray.exceptions.RayTaskError(ExceptionGroup): "


@pytest.mark.parametrize("margin", ["", "  | "])
@pytest.mark.parametrize("between", ["", "(raylet) the disk is nearly full\n"])
def test_a_group_of_a_task_is_the_tasks_that_the_table_has(margin: str, between: str) -> None:
    first, *rest = IN_TASK.splitlines(keepends=True)
    rest.insert(6, between)
    log = GET + DUAL + first + "".join(margin + each if each else "" for each in rest) + AGAIN
    other = "User exception:\nx\n  +-+---------------- 1 ----------------\n    | KeyError: 'b'\n"
    rows = [task("other", error=other), task("load", error=f"User exception:\n{IN_TASK[-500:]}")]
    for tasks, subject in ((rows, "task load"), ([], "a task")):
        found = of_log(log, tasks=tasks)
        assert found.id == "task-raised"
        assert found.what == f"job train-1 failed: {subject} raised ExceptionGroup"
        assert found.why == "outer (2 sub-exceptions): ValueError: shard 1; KeyError: 'a'"
        assert found.where == "/w/lib.py:7, in read"


def test_of_a_group_of_which_the_table_has_the_end_the_parts_are_told() -> None:
    told = raised_in_task(f"User exception:\n{IN_TASK[IN_TASK.index(', line 7') :]}")
    assert told and (told.name, told.message) == ("ExceptionGroup", "ValueError: shard 1; KeyError: 'a'")
    more = "    +---------------- ... ----------------\n    | and 3 more exceptions\n    +" + "-" * 36
    many = raised_in_task(f"User exception:\n{IN_TASK}{more}")
    assert many and many.message.endswith("ValueError: shard 1; KeyError: 'a'; and 3 more exceptions")
    cut = raised_in_task(f"User exception:\n{IN_TASK[IN_TASK.index('exceptions)') :]}")
    assert cut and (cut.name, cut.message) == ("ExceptionGroup", "ValueError: shard 1; KeyError: 'a'")
    short = raised_in_task(f"User exception:\n{IN_TASK[IN_TASK.rindex('  +-+') :]}")
    assert short and short.message == "KeyError: 'a'"


def test_a_group_within_an_actors_init_is_its_cause() -> None:
    words = "The actor died because of an error raised in its creation task, "
    plain = GET.replace("  | ", "").replace("  + Exception Group ", "")
    log = f"{plain}ray.exceptions.ActorDiedError: {words}{IN_TASK}"
    raised = last_raised(log)
    assert raised and raised.name == "ActorDiedError"
    assert raised.cause == "ExceptionGroup: outer (2 sub-exceptions): ValueError: shard 1; KeyError: 'a'"


def test_a_task_that_ended_itself_with_words_is_told_with_them() -> None:
    row = task(
        error="UnexpectedSystemExit: Worker exits with an exit code config has\nno key lr.",
        error_type="WORKER_DIED",
    )
    found = of_log(
        'Traceback (most recent call last):\n  File "/w/main.py", line 4, in <module>\n    x\n'
        "ray.exceptions.WorkerCrashedError: The worker died unexpectedly.\n",
        tasks=[row],
    )
    assert (found.id, found.why) == ("task-raised", "config has no key lr")
    assert found.what == "job train-1 failed: task load raised SystemExit"


# --- what is odd -------------------------------------------------------------------------

BOXED = """\
╭──────────── Traceback (most recent call last) ─────────────╮
│ /w/main.py:9 in run                                        │
│                                                            │
│ ❱ 9 │   raise ValueError("x")                              │
╰────────────────────────────────────────────────────────────╯
ValueError: x
"""


def test_a_box_in_ascii_and_one_whose_begin_is_cut_off_are_read_as_well() -> None:
    plain = BOXED.translate(str.maketrans("╭╮╰╯─│❱", "++++-|>"))
    for log in (plain, BOXED, f"x\n{BOXED}", "\n".join(BOXED.splitlines()[1:])):
        found = of_log(log)
        assert (found.id, found.where, found.why) == ("driver-raised", "/w/main.py:9, in run", "x")


def test_a_box_that_never_ends_hides_no_later_one() -> None:
    begun = "\n".join(BOXED.splitlines()[:2])
    found = of_log(f"{begun}\nwent on\n{BOXED.replace('ValueError', 'KeyError')}")
    assert (found.what, found.why) == ("job train-1 failed: the driver raised KeyError", "x")
    # Nor does a panel of the program's own, which is no traceback.
    panel = "╭─ Error ──────╮\n│ no such option │\n╰──────────────╯\n"
    assert of_log(panel).id == "job-failed"
    assert of_log(panel + BOXED + panel).where == "/w/main.py:9, in run"


BOX = "╭─ Traceback (most recent call last) ─╮\n│ "


@pytest.mark.parametrize(
    "piece",
    [
        "╭─ Sub-exception #1 ─╮\n",
        "│ ",
        "| ",
        "  +-+---------------- 1 ----------------\n",
        "─" * 40,
        "a.",
        "x:1 in y\n│ ",
        "1",
    ],
)
def test_a_made_up_log_takes_a_time_that_grows_with_its_length_alone(piece: str) -> None:
    def seconds(length: int) -> float:
        head = "Traceback (most recent call last):\n(a pid=" if piece == "1" else BOX
        log = head + piece * (length // len(piece))
        began = time.process_time()
        findings(seen([job()], logs={"train-1": log}))
        return time.process_time() - began

    assert min(seconds(60_000) for _ in range(3)) < 9 * min(seconds(15_000) for _ in range(3)) + 0.05


@pytest.mark.parametrize("length", [*range(1, 140, 9), 127])
def test_a_place_is_read_wherever_rich_breaks_its_line(tmp_path: Path, length: int) -> None:
    (folder := tmp_path / ("d" * length)).mkdir()
    file, words = folder / "main.py", "one two " * length
    file.write_text(f"def fun():\n    raise ValueError({words!r})\nfun()\n")
    with pytest.raises(ValueError) as raised:
        runpy.run_path(str(file))
    output = io.StringIO()
    traced = Traceback.from_exception(raised.type, raised.value, raised.tb)
    Console(file=output, width=80).print(traced)
    found = last_raised(output.getvalue())
    assert found and (found.place, found.message.split()) == (f"{file}:2, in fun", words.split())


# --- a Python without Ray ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("entrypoint", "log", "path"),
    [
        ("/opt/my env/bin/python train.py", "", ""),
        ("cd x && /opt/mine/bin/python3.12 train.py", "", ", /opt/mine/bin/python3.12,"),
        ("python train.py", "", ""),
        (
            "train",
            '  File "/opt/mine/lib/python3.12/site-packages/train/main.py", line 1, in <module>\n    x\n',
            ", /opt/mine/bin/python3.12,",
        ),
    ],
)
def test_a_driver_whose_python_has_no_ray_is_told_with_its_path(entrypoint: str, log: str, path: str) -> None:
    traced = 'Traceback (most recent call last):\n  File "/w/train.py", line 1, in <module>\n    import ray\n'
    log = f"{traced}{log}ModuleNotFoundError: No module named 'ray'\n"
    found = only(findings(seen([job(entrypoint=entrypoint)], logs={"train-1": log})))
    assert found.id == "driver-without-ray"
    assert found.what == f"job train-1 failed: its Python{path} is not Ray's: it has no module ray"
    assert entrypoint in found.why


def test_a_module_of_rays_own_that_python_does_not_find() -> None:
    log = (
        "/usr/bin/python3: Error while finding module specification for 'ray.train' (ModuleNotFoundError: x)"
    )
    assert of_log(log).what.startswith("job train-1 failed: its Python, /usr/bin/python3, is not Ray's")
    lacks = 'Traceback (most recent call last):\n  File "t.py", line 1, in f\n    x\nModuleNotFoundError: '
    assert of_log(f"{lacks}No module named 'ray.llm'\n").id == "module-not-found"
    assert of_log(f"{lacks}No module named 'rayon'\n").id == "module-not-found"
