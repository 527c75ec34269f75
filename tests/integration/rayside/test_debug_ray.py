"""Tests the debugger on real Ray, through its relay: whatever stops, wherever its file came from."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from bootstrap.settings import ROOT
from rayside.client.terminal import PROMPT
from rayside.dap.client import Client
from rayside.waiting import until
from tests.integration.conftest import Rayside, stop_jobs
from tests.integration.crowd import debug_a_crowd
from tests.integration.screen import Screen
from tests.patience import PATIENCE

PROGRAM = """\
import ray
from model import scale

@ray.remote
class Counter:
    def __init__(self):
        self.total = 40

    def add(self, amount):
        breakpoint()
        self.total += amount
        return self.total

@ray.remote
def work(n):
    factor = n + 1
    breakpoint()
    return scale(n, factor)

together = ray.get([work.remote(1), work.remote(2)])
counter = Counter.remote()
total = ray.get(counter.add.remote(2))
breakpoint()
print(f"result {sorted(together)} {total}")
"""
# A driver whose file no worker has, as if it ran on another machine.
BY_VALUE = """\
import os, ray

@ray.remote
def work(n):
    def inner(n):
        return n  # closure
    return inner(n + 1)  # task

@ray.remote
class Counter:
    def add(self, n):
        return n  # actor

ray.init()
print(f"result {ray.get(work.remote(1))} {ray.get(Counter.remote().add.remote(3))}")
"""
# The driver's own is gone before the relay could read it there.
WITHOUT_ITS_FILE = (
    'mv program.py program.txt && python -c "import os;'
    " exec(compile(open('program.txt').read(), os.path.abspath('program.py'), 'exec'))\""
)
MODULE = """\
def scale(value, factor):
    result = value * factor
    breakpoint()
    return result
"""
# Each task has a loss and gradients; one of them has a NaN in both, and one gradients of another shape.
LOSSES = """\
import numpy, ray

@ray.remote(num_cpus=0)
def train(rank):
    loss = [0.5, float("nan"), 0.25][rank]
    gradients = numpy.full((1000, 3 if rank < 2 else 2), loss, dtype="float32")
    breakpoint()
    return rank

ray.get([train.remote(rank) for rank in range(3)])
"""
# A task that raises in a function which it calls, one that catches, an actor that raises.
RAISES = """\
import ray

@ray.remote
def careful(amount):
    try:
        return int("x" * amount)
    except ValueError:
        return 0

def part(amount, heads):
    rest = amount
    return rest / heads

@ray.remote(max_retries=0)
def share(amount, heads):
    return part(amount, heads)

@ray.remote
class Account:
    balance = 20

    def draw(self, amount):
        raise ValueError(f"{self.balance} are left")

def reason(ref):
    try:
        ray.get(ref)
    except Exception as error:
        return type(error.cause).__name__

account = Account.remote()
seen = [reason(share.remote(6, 0)), reason(account.draw.remote(50)), ray.get(careful.remote(3))]
print(" ".join(map(str, ["ended", *seen])))
"""


@pytest.fixture(scope="module")
def up(rayside: Rayside) -> Rayside:
    done = rayside.run("up", "--no-example")
    assert done.returncode == 0, done.stdout + done.stderr
    return rayside


@pytest.fixture(autouse=True)
def nothing_is_left(up: Rayside) -> Iterator[None]:
    yield
    stop_jobs(up.target.access.require())


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "some code"
    (folder / "lib" / "model").mkdir(parents=True)
    (folder / "lib" / "model" / "__init__.py").write_text(MODULE)
    (folder / "program.py").write_text(PROGRAM)
    return folder


def line(program: str, marker: str) -> int:
    return program[: program.index(f"# {marker}\n")].count("\n") + 1


def submit(up: Rayside, code: Path, *more: str, modules: Sequence[str] = ("lib/model",)) -> str:
    arguments = [
        *(f"--py-modules={module}" for module in modules),
        "--entrypoint",
        "python program.py",
        *more,
    ]
    return str(up.json("submit", *arguments, cwd=code)["submission_id"])


@pytest.mark.gate
def test_tasks_actors_modules_and_the_driver_stop_each_in_its_local_file(up: Rayside, code: Path) -> None:
    job = submit(up, code)
    result = up.json("debug", "--job", job, "--evaluate", "locals().get('factor')")
    stops = [(stop["task"], stop["function"], Path(stop["file"]).name) for stop in result["stopped"]]
    assert sorted(stops) == [
        ("Counter.add", "add", "program.py"),
        ("driver", "<module>", "program.py"),
        ("work", "scale", "__init__.py"),
        ("work", "scale", "__init__.py"),
        ("work", "work", "program.py"),
        ("work", "work", "program.py"),
    ]
    assert {stop["file"] for stop in result["stopped"]} == {
        str(code / "program.py"),
        str(code / "lib" / "model" / "__init__.py"),
    }
    assert sorted(
        s["evaluated"]["locals().get('factor')"] for s in result["stopped"] if "factor" in s["locals"]
    ) == [
        "2",
        "2",
        "3",
        "3",
    ]
    assert result["job"] == {"submission_id": job, "status": "SUCCEEDED"}
    assert "result [2, 6] 42" in up.run("logs", "--job", job).stdout


def test_the_stacks_of_a_job_are_shown_and_what_waits_in_it_waits_on(up: Rayside, code: Path) -> None:
    work = PROGRAM[: PROGRAM.index("together =")]
    (code / "program.py").write_text(f"{work}work.remote(1)\nray.get(Counter.remote().add.remote(2))\n")
    job = submit(up, code)
    # Ray's table of tasks may know of a paused one later than its table of workers.
    paused = until(
        lambda: up.json("breakpoints"),
        lambda rows: [bool(row["task"]) for row in rows] == [True, True],
        patience=120,
    )
    result = up.json("debug", "--stacks", "--job", job)
    assert (result["job"], result["processes"], result["unanswered"]) == (job, 2, [])
    text = up.run("debug", "--stacks", "--job", job).stdout
    assert text.startswith(f"job {job}\n")
    assert re.search(rf"^1  add  {re.escape(str(code))}/program.py:10$", text, re.MULTILINE), text
    assert re.search(r"^     Counter.add · [0-9]+@", text, re.MULTILINE), text
    assert up.json("breakpoints") == paused
    up.json("debug", "--job", job)
    ended = up.run("debug", "--stacks", "--job", job)
    assert ended.returncode != 0
    assert "has ended" in ended.stderr


def test_an_expression_is_compared_over_all_stopped_tasks_of_a_job(up: Rayside, code: Path) -> None:
    (code / "program.py").write_text(LOSSES)
    job = submit(up, code)
    until(lambda: up.json("breakpoints"), lambda rows: len(rows) == 3, patience=120)
    nobody = up.run("debug", "--compare", "loss", "--job", job)
    assert nobody.returncode != 0
    assert "is stopped in a debugger; 3 of its tasks wait for one" in nobody.stderr
    assert "Ctrl-C at its prompt leaves them stopped" in nobody.stderr

    def compared() -> Any:
        # Its input ends, which leaves all tasks stopped that have come to it by then.
        up.run("debug", "--job", job)
        return up.json("debug", "--compare", "loss", "--job", job)

    result = until(compared, lambda it: it["tasks"] == 3, patience=60)
    shown = [(group["value"]["shown"], group["mark"], group["count"]) for group in result["groups"]]
    assert (shown[0], sorted(shown[1:])) == (("nan", "nan", 1), [("0.25", "", 1), ("0.5", "", 1)])
    (task,) = result["groups"][0]["tasks"]
    assert (task["task"], task["submissionId"], result["job"], result["failed"]) == ("train", job, job, [])
    (nan, other, _) = up.json("debug", "--compare", "gradients", "--job", job)["groups"]
    assert {name: nan["value"][name] for name in ("kind", "type", "shape", "dtype", "nan", "inf")} == {
        "kind": "array",
        "type": "numpy.ndarray",
        "shape": [1000, 3],
        "dtype": "float32",
        "nan": 3000,
        "inf": 0,
    }
    assert (other["mark"], other["value"]["shape"], other["value"]["mean"]) == ("shape", [1000, 2], 0.25)
    # Each sums up for some tenths of a second, and has to answer within seconds: others work here, too.
    view = "numpy.broadcast_to(numpy.float32(1), (9, 10**6, 10**6))"
    (large,) = until(lambda: up.json("debug", "--compare", view, "--job", job)["groups"], bool, patience=60)
    assert (large["count"], large["value"]["size"], large["value"]["mean"]) == (3, 9 * 10**12, 1.0)
    assert 10**6 <= large["value"]["sample"] <= 6 * 10**7
    text = up.run("debug", "--compare", "gradients", "--job", job).stdout
    assert re.search(r"^1  numpy.ndarray \(1000, 3\) float32: 3,000 NaN  <- NaN", text, re.MULTILINE), text
    wrong = up.run("debug", "--compare", "loss =", "--job", job)
    assert wrong.returncode == 2
    assert "it is no Python expression" in wrong.stderr
    terminal = up.run("debug", "--job", job, typed="1\ncompare loss\ncompare loss =\nquit\n")
    assert "loss  in 3 stopped tasks: 0.25 to 0.5, median 0.375\n" in terminal.stdout
    assert "1  nan  <- NaN or infinity\n" in terminal.stdout
    assert "it is no Python expression" in terminal.stderr
    ended = until(
        lambda: up.run("debug", "--compare", "loss", "--job", job).stderr,
        lambda told: "has ended" in told,
        patience=60,
    )
    assert "has ended, so it has no stopped tasks" in ended


@pytest.mark.gate
def test_unmodified_code_stops_at_breakpoints_in_local_files(up: Rayside, code: Path) -> None:
    for file, text in ((code / "program.py", PROGRAM), (code / "lib" / "model" / "__init__.py", MODULE)):
        file.write_text(text.replace("breakpoint()", ""))  # leaves lines without code
    job = submit(up, code, "--debug")
    breaks = [
        "--break=program.py:11",  # the actor's
        "--break=program.py:17:n in {2: 'a:b'}",
        "--break=lib/model/__init__.py:3:value == 1",
        "--break=program.py:23",  # the driver's
    ]
    done = up.run("debug", "--job", job, *breaks, "--evaluate", "locals().get('n')", "--json", cwd=code)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    stops = [(stop["task"], Path(stop["file"]).name, stop["line"]) for stop in result["stopped"]]
    assert sorted(stops) == [
        ("Counter.add", "program.py", 11),
        ("driver", "program.py", 24),
        ("work", "__init__.py", 4),
        ("work", "program.py", 18),
    ]
    assert {stop["file"] for stop in result["stopped"]} == {
        str(code / "program.py"),
        str(code / "lib" / "model" / "__init__.py"),
    }
    [work] = [stop for stop in result["stopped"] if stop["function"] == "work"]
    assert work["evaluated"] == {"locals().get('n')": "2"}
    assert result["job"] == {"submission_id": job, "status": "SUCCEEDED"}
    assert done.stderr.count(f"breakpoint at {code / 'program.py'}:18") == 1  # it was moved
    assert "was not submitted with --debug" not in done.stderr


def test_what_came_by_value_stops_where_no_worker_has_the_drivers_file(up: Rayside, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(BY_VALUE)
    job = str(up.json("submit", "--debug", "--entrypoint", WITHOUT_ITS_FILE, cwd=tmp_path)["submission_id"])
    breaks = [f"--break=program.py:{line(BY_VALUE, marker)}" for marker in ("task", "actor", "closure")]
    done = up.run("debug", "--job", job, *breaks, "--evaluate", "n", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    stops = json.loads(done.stdout)["stopped"]
    assert sorted((stop["task"], stop["function"], stop["evaluated"]["n"]) for stop in stops) == [
        ("Counter.add", "add", "3"),
        ("work", "inner", "2"),
        ("work", "work", "1"),
    ]
    assert {stop["file"] for stop in stops} == {str(tmp_path / "program.py")}
    assert "result 2 3" in up.run("logs", "--job", job).stdout


# Of the tasks one fails at its first attempt; of the actors one has a name.
SCOPED = """\
import ray

@ray.remote(num_cpus=0.1)
def train(n):
    return n  # task

@ray.remote(num_cpus=0.1, max_retries=1, retry_exceptions=True)
def flaky():
    n = 7  # attempt
    if not FOLDER.exists():
        FOLDER.mkdir()
        raise ValueError("the first attempt")
    return n

@ray.remote(num_cpus=0.1)
class Trainer:
    def step(self, n):
        return n  # actor

from pathlib import Path
FOLDER = Path(__file__).parent / "tried"
trainers = [Trainer.options(name=name).remote() for name in ("first", "second")]
steps = ray.get([trainer.step.remote(n) for n, trainer in enumerate(trainers)])
print(f"result {ray.get([train.remote(n) for n in range(3)])} {ray.get(flaky.remote())} {steps}")
"""


def test_tasks_are_gathered_and_conditions_say_where_they_hold(up: Rayside, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(SCOPED)
    job = submit(up, tmp_path, "--debug", modules=())
    attempt, actor, task = (line(SCOPED, marker) for marker in ("attempt", "actor", "task"))
    breaks = [
        f"--break=program.py:{task} gather 3: ray.task == 'train' and ray.actor == ''",
        f"--break=program.py:{attempt}:ray.attempt == 1",
        f"--break=program.py:{actor}:ray.actor == 'Trainer' and ray.actor_name == 'second' and ray.node",
    ]
    told = "(ray.task, ray.attempt, ray.actor_name, ray.submission)"
    options = ["--evaluate", told, "--evaluate", "n", "--json"]
    done = up.run("debug", "--job", job, *breaks, *options, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    stops = json.loads(done.stdout)["stopped"]
    assert sorted((stop["line"], stop["evaluated"][told]) for stop in stops) == [
        *[(task, f"('train', 0, '', '{job}')")] * 3,
        (attempt, f"('flaky', 1, '', '{job}')"),
        (actor, f"('Trainer.step', 0, 'second', '{job}')"),
    ]
    assert [stop["evaluated"]["n"] for stop in stops if stop["line"] == actor] == ["1"]
    assert done.stderr.count(f"3 tasks have come to {tmp_path / 'program.py'}:{task}: they stop now.") == 1
    assert "result [0, 1, 2] 7 [0, 1]" in up.run("logs", "--job", job).stdout


# Of three actors, which have ranks as torchrun gives them, one ends in its second line.
RANKS = """\
import os, ray

@ray.remote(num_cpus=0)
class Trainer:
    def __init__(self, rank):
        os.environ["RANK"] = str(rank)
    def step(self, rank):
        loss = 1  # first
        rank == 2 and os._exit(3)
        return loss

trainers = [Trainer.remote(rank) for rank in range(3)]
steps = [trainer.step.remote(rank) for rank, trainer in enumerate(trainers)]
for step in steps[:2]:
    print(f"result {ray.get(step)}")
"""


def test_a_group_of_actors_is_stepped_and_the_one_that_dies_is_named(up: Rayside, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(RANKS)
    job = submit(up, tmp_path, "--debug", modules=())
    token = up.target.instance.token_file.read_text()
    first = line(RANKS, "first")

    async def answers() -> list[dict[str, Any]]:
        client = await Client.connect("127.0.0.1", up.settings.relay_port)
        options = {"token": token, "job": job}
        breakpoints = {str(tmp_path / "program.py"): [{"line": first}]}
        await client.attach(options=options, breakpoints=breakpoints, no_delay=False)
        stops = 0
        while stops < 3:
            event = await asyncio.wait_for(client.events.get(), PATIENCE)
            assert event is not None
            stops += event["event"] == "stopped"

        async def act(group: str, action: str) -> dict[str, Any]:
            arguments = {"group": group, "action": action, "within": 60}
            return dict(await client.request("group", arguments, timeout=90))

        acts = [
            *[("actor:Trainer", "next"), ("ray.rank is not None and ray.actor_id", "next")],
            *[("ranks", "members"), ("task:driver", "members"), ("task:Trainer.step", "continue")],
        ]
        given = [await act(*each) for each in acts]
        await client.disconnect()
        return given

    one, two, ranks, driver, go_on = asyncio.run(asyncio.wait_for(answers(), 240))
    states = [sorted((row["rank"], row["state"]) for row in each["members"]) for each in (one, two, ranks)]
    assert states[0] == [(0, "stopped"), (1, "stopped"), (2, "stopped")]
    assert states[1] == [(0, "stopped"), (1, "stopped"), (2, "ended")]
    assert states[2] == [(0, "stopped"), (1, "stopped")]
    assert {row["place"]["line"] for row in one["members"]} == {first + 1}
    (ended,) = [row for row in two["members"] if row["state"] == "ended"]
    assert "exit" in ended["why"], ended
    assert [row["state"] for row in driver["members"]] == ["running"]
    assert [row["state"] for row in go_on["members"]] == ["running", "running"]
    until(lambda: up.run("logs", "--job", job).stdout, lambda text: text.count("result 1") == 2, patience=60)


@pytest.mark.gate
def test_exceptions_that_a_task_does_not_catch_stop_where_they_are_raised(
    up: Rayside, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(RAISES)
    job = submit(up, tmp_path, "--debug", modules=())
    result = up.json("debug", "--job", job, "--exceptions", "--evaluate", "amount", cwd=tmp_path)
    stops = [
        (s["task"], s["reason"], s["function"], s["line"], s["evaluated"]["amount"])
        for s in result["stopped"]
    ]
    # Neither the one that is caught in the task, nor what Ray raises of them in the driver.
    assert sorted(stops) == [
        ("Account.draw", "exception", "draw", 23, "50"),
        ("share", "exception", "part", 12, "6"),
    ]
    assert {stop["file"] for stop in result["stopped"]} == {str(tmp_path / "program.py")}
    assert result["job"] == {"submission_id": job, "status": "SUCCEEDED"}
    assert "ended ZeroDivisionError ValueError 0" in up.run("logs", "--job", job).stdout


EARLY = """\
import os, subprocess, sys
first = 1  # first
subprocess.run([sys.executable, "-c", "print('a child')"], check=True)
assert "ray" not in sys.modules
os.environ["RAY_TASK_MAX_RETRIES"] = "0"  # which Ray reads at its import
import ray
imported = 1  # imported

@ray.remote
def work(n):
    return n + 1  # task

ray.init()
result = ray.get(work.remote(1))  # after
print(f"result {result} {[name for name in os.environ if name.startswith('RAYSIDE_A')]}")
"""


def test_a_driver_stops_in_its_first_lines_and_is_one_debuggee_from_there_on(
    up: Rayside, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(EARLY)
    log = up.folder / "relay.log"
    earlier = len(log.read_text())
    job = submit(up, tmp_path, "--debug", modules=())
    markers = ["first", "imported", "task", "after"]
    breaks = [f"--break=program.py:{line(EARLY, marker)}" for marker in markers]
    done = up.run("debug", "--job", job, *breaks, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    stops = [(stop["task"], stop["file"], stop["line"]) for stop in result["stopped"]]
    tasks = ["driver", "driver", "work", "driver"]
    output = up.run("logs", "--job", job).stdout
    assert sorted(stops) == sorted(
        (task, str(program), line(EARLY, marker)) for task, marker in zip(tasks, markers, strict=True)
    ), output
    assert result["job"] == {"submission_id": job, "status": "SUCCEEDED"}
    assert "a child\n" in output and "result 2 []" in output
    assert output.count("\nrayside: waiting for a debugger") == 1, output  # the driver; workers have a prefix
    logged = log.read_text()[earlier:]
    assert logged.count("attached to driver") == 1, logged


PARTS = """\
import os, sys

def part(n):
    half = n / 2  # part
    return half

if __name__ == "__main__":
    print(f"part {part(int(sys.argv[1]))}")
"""
HAS_CHILDREN = """\
import multiprocessing, subprocess, sys
import parts, ray

@ray.remote
def load(method):
    with multiprocessing.get_context(method).Pool(2) as pool:
        return sum(pool.map(parts.part, range(4), chunksize=1))

@ray.remote
def run():
    command = [sys.executable, parts.__file__, "8"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout

ray.init()
print(f"loaded {ray.get([load.remote('fork'), load.remote('spawn')])} {ray.get(run.remote())}")
"""


def test_processes_that_tasks_start_stop_as_tasks_do(up: Rayside, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(HAS_CHILDREN)
    (tmp_path / "parts.py").write_text(PARTS)
    job = submit(up, tmp_path, "--debug", modules=())
    at = f"--break=parts.py:{line(PARTS, 'part')}"
    result = up.json("debug", "--job", job, at, "--evaluate", "n", cwd=tmp_path)
    assert sorted(stop["evaluated"]["n"] for stop in result["stopped"]) == [*"00112233", "8"]
    assert all(stop["task"].startswith("child ") for stop in result["stopped"]), result
    assert result["job"] == {"submission_id": job, "status": "SUCCEEDED"}
    assert "loaded [3.0, 3.0] part 4.0" in up.run("logs", "--job", job).stdout
    job = submit(up, tmp_path, "--debug", modules=())
    # Nothing stops, so that its patience is for the whole job: four processes begin, one after the other.
    patience = ["--timeout", "250"]
    result = up.json("debug", "--job", job, at, "--no-children", *patience, cwd=tmp_path, timeout=300)
    assert result == {"stopped": [], "job": {"submission_id": job, "status": "SUCCEEDED"}}


def test_eight_tasks_are_stopped_at_once_in_one_session(up: Rayside, tmp_path: Path) -> None:
    debug_a_crowd(up, up.target.instance.token_file.read_text(), tmp_path)


# Ray carries what its tasks print to the driver's output a while later, and what is under way when the driver
# ends is lost: the program waits for it. Of lines from two workers that differ in numbers alone Ray shows
# the first, and what is written in two pieces may come as two lines.
PRINTS = """\
import os, ray, sys, time
@ray.remote
def work(name):
    print(f"task {name}")
    print(f"bad {name}", file=sys.stderr)
@ray.remote
class Actor:
    def work(self):
        print("actor")
    def begin(self):
        print("begun", end="")
    def end(self):
        print("ended")
ray.get([work.remote(name) for name in ("one", "two")])
actor = Actor.remote()
ray.get(actor.work.remote())
ray.get(actor.begin.remote())
ray.get(actor.end.remote())
output, end = os.readlink("/proc/self/fd/1"), time.monotonic() + 60
printed = ("task one", "task two", "bad one", "bad two", "actor", "begun", "ended")
while not all(line in open(output).read() for line in printed) and time.monotonic() < end:
    time.sleep(0.1)
print("driver")
"""


def test_what_tasks_print_is_told_once_and_stays_in_the_jobs_output(up: Rayside, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PRINTS)
    arguments = ["--debug", "--working-dir", str(tmp_path), "--entrypoint", "python program.py"]
    job = str(up.json("submit", *arguments, timeout=180)["submission_id"])
    token = up.target.instance.token_file.read_text()

    async def events() -> list[Any]:
        client = await Client.connect("127.0.0.1", up.settings.relay_port)
        options = {"token": token, "job": job, "redirectOutput": True}
        await client.attach(options=options, no_delay=False)
        prints: list[dict[str, Any]] = []
        while not any(body["output"].endswith(": driver\n") for body in prints):
            event = await asyncio.wait_for(client.events.get(), PATIENCE)
            assert event is not None
            if event["event"] == "output" and event["body"]["category"] in ("stdout", "stderr"):
                prints.append(event["body"])
        await client.disconnect()
        lines = []
        for body in prints:
            text, place = body["output"].partition(": ")[2].strip(), body.get("source") or {}
            task = body["data"]["ray"]["task"]
            lines.append((task, text, body["category"], place.get("path", ""), body.get("line", 0)))
        return lines

    printed = asyncio.run(asyncio.wait_for(events(), 240))
    # Of what is printed at a line of the program, `ray.init` prints some by itself.
    programs_lines = [
        (task, text, *rest, line)
        for task, text, *rest, path, line in printed
        if path == str(program) and "INFO worker.py" not in text
    ]
    assert sorted(programs_lines) == [
        # Of one thread, but of two tasks.
        ("Actor.begin", "begun", "stdout", 11),
        ("Actor.end", "ended", "stdout", 13),
        ("Actor.work", "actor", "stdout", 9),
        ("driver", "driver", "stdout", 23),
        ("work", "bad one", "stderr", 5),
        ("work", "bad two", "stderr", 5),
        ("work", "task one", "stdout", 4),
        ("work", "task two", "stdout", 4),
    ]
    # Nor does Ray's driver repeat what its tasks have printed.
    assert not [line for _, line, *_ in printed if "pid=" in line or line.startswith(":")]
    output = up.run("logs", "--job", job).stdout
    # Ray's log monitor takes what a file ends with for a line, so "begun" and "ended" are one or two.
    for text in ("task one", "task two", "bad one", "bad two", "actor", "begun", "ended", "driver"):
        assert output.count(text) == 1, output


def test_a_breakpoint_in_a_job_without_the_hook_says_what_it_can_reach(up: Rayside, code: Path) -> None:
    job = submit(up, code)
    done = up.run("debug", "--job", job, "--break", "program.py:12", "--json", cwd=code)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.count(f"job {job} was not submitted with --debug") == 1
    # Its worker pauses by itself one line before, and is reached from then on.
    assert ("add", 12) in [(stop["function"], stop["line"]) for stop in json.loads(done.stdout)["stopped"]]


def test_a_person_leaves_a_task_stopped_and_comes_back_to_it(up: Rayside) -> None:
    up.json("submit")
    first = Screen(str(ROOT / "invokew"), "debug", env=up.environment)
    try:
        assert "in estimate" in first.until(PROMPT)
        first.type("p points\r")
        assert "400000" in first.until(PROMPT)
        first.type("next\r")
        first.until(PROMPT)
        first.type("\x03")
        first.until("stays stopped")
    finally:
        first.close()
    assert [paused["task"] for paused in up.json("breakpoints")] == ["estimate"]
    nobody_types = up.run("debug")
    assert nobody_types.returncode == 130, nobody_types.stderr
    assert "stays stopped" in nobody_types.stderr
    [paused] = up.json("breakpoints")
    assert paused["task"] == "estimate"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", paused["since"])
    assert f"  stopped {paused['since']}\n" in up.run("breakpoints").stdout
    second = Screen(str(ROOT / "invokew"), "debug", env=up.environment)
    try:
        assert "in estimate" in second.until(PROMPT)
        second.type("continue\r")
        second.until("ended: SUCCEEDED")
    finally:
        second.close()


@pytest.mark.parametrize("place", ["nowhere.py:3", "program.py", "program.py:0"])
def test_a_breakpoint_nowhere_is_an_error(up: Rayside, code: Path, place: str) -> None:
    assert up.json("debug", "--break", place, code=2, cwd=code)["error"]["id"] == "invalid-argument"


def test_vs_code_is_told_of_the_relay_and_never_the_token(up: Rayside, tmp_path: Path) -> None:
    file = tmp_path / ".vscode" / "launch.json"
    document = {"file": str(file), "configuration": "Ray cluster (Rayside)"}
    assert up.json("debug", "--launch-json", cwd=tmp_path) == {**document, "changed": True}
    assert up.json("debug", "--launch-json", cwd=tmp_path) == {**document, "changed": False}
    [configuration] = json.loads(file.read_text())["configurations"]
    assert configuration["connect"] == {"host": "127.0.0.1", "port": up.settings.relay_port}
    token = up.folder / "token"
    assert str(token) in file.read_text()
    assert token.read_text() not in file.read_text()
