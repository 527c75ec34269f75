"""Tests retries of failed tasks on a real Ray: edited files, the same inputs, and the job goes on."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rayside.dap import client as dap
from rayside.errors import RequestFailed
from rayside.waiting import until
from tests.integration.conftest import Rayside, stop_jobs
from tests.integration.relay_debuggees import Session
from tests.patience import PATIENCE

# 200 tasks: every tenth has a number that `int` does not take, by a function of a nested package. Each task
# writes that it began, and changes its input before it fails.
CROWD = """\
import ray
from records.readers import number

@ray.remote(num_cpus=0.5)
def work(record):
    with open(record["began"], "a") as began:
        began.write(f"{record['n']}\\n")
    record["n"] = number.read(record["n"])
    return record["n"]

ray.init()
numbers = [f"{n}.5" if n % 10 == 0 else str(n) for n in range(200)]
print("sum", sum(ray.get([work.remote({"n": n, "began": BEGAN}) for n in numbers])))
"""
NUMBER = """\
def read(text):
    return int(text)
"""
# One of each kind of call, which fails once each; by value, for they are the driver's own.
KINDS = """\
import asyncio
import ray

@ray.remote
class Plain:
    def __init__(self):
        self.seen = []

    def add(self, text):
        self.seen.append(text)
        return int(text) + len(self.seen)  # plain

@ray.remote
class Async:
    async def quick(self):
        return "quick"

    async def add(self, texts):
        await asyncio.sleep(0)
        return int(texts.pop())  # async

@ray.remote(num_returns="streaming")
def stream(texts):
    while texts:
        yield int(texts.pop())  # stream

@ray.remote
def closed(text):
    def inner():
        return int(text)  # closed
    return inner()

ray.init()
plain, asynchronous = Plain.remote(), Async.remote()
print("kind plain", ray.get([plain.add.remote("1"), plain.add.remote("2.5")]))
late = asynchronous.add.remote(["2.5"])
print("kind others", ray.get([asynchronous.quick.remote() for _ in range(3)]))
print("kind async", ray.get(late))
print("kind stream", [ray.get(each) for each in stream.remote(["3", "2.5", "1"])])
print("kind closed", ray.get(closed.remote("2.5")))
"""


@pytest.fixture(scope="module")
def up(rayside: Rayside) -> Rayside:
    done = rayside.run("up", "--no-example")
    assert done.returncode == 0, done.stderr
    return rayside


@pytest.fixture(autouse=True)
def no_jobs_left(up: Rayside) -> Iterator[None]:
    yield
    stop_jobs(up.target.access.require())


def submit(up: Rayside, folder: Path, program: str = "program.py") -> str:
    words = ["--debug", "--post-mortem", "--attach-timeout", "0", "--working-dir", str(folder)]
    return str(up.json("submit", *words, "--entrypoint", f"python {program}")["submission_id"])


def waiting(up: Rayside, number: int) -> None:
    def seen() -> Any:
        return up.json("breakpoints")

    tasks = until(seen, lambda tasks: len(tasks) >= number, PATIENCE)
    assert len(tasks) >= number, up.run("logs").stdout


def end(up: Rayside, job: str) -> str:
    done = up.run("logs", "--job", job, "--follow", timeout=PATIENCE)
    assert up.target.access.require().job(job).status == "SUCCEEDED", done.stdout
    return done.stdout


def retried(up: Rayside, *words: str, code: int = 0) -> Counter[str]:
    answer = up.json("retry", *words, code=code, timeout=PATIENCE)
    return Counter(row["outcome"] for row in answer["retried"])


@pytest.mark.gate
def test_a_crowd_that_fails_at_one_line_is_fixed_once(up: Rayside, tmp_path: Path) -> None:
    began = tmp_path / "began"
    folder = tmp_path / "code"
    package = folder / "records" / "readers"
    package.mkdir(parents=True)
    (package / "number.py").write_text(NUMBER)
    (folder / "program.py").write_text(CROWD.replace("BEGAN", repr(str(began))))
    job = submit(up, folder)
    waiting(up, 4)
    (package / "number.py").write_text(NUMBER.replace("int(", "flot("))
    assert retried(up, code=1)["raised"] == 4
    (package / "number.py").write_text(NUMBER.replace("int(text)", "int(float(text))"))
    answer = up.json("retry", timeout=PATIENCE)
    assert [row["outcome"] for row in answer["retried"]] == ["returned"] * 4
    assert {row["task"] for row in answer["retried"]} == {"work"}
    assert answer["edited"] == [str(package / "number.py")]
    output = end(up, job)
    assert f"sum {sum(range(200))}" in output
    times = Counter(began.read_text().split())
    again = {n for n, count in times.items() if count > 1}
    assert len(times) == 200 and len(again) == 4 and all(n.endswith("0.5") for n in again)
    edits = up.json("edits", "--job", job)
    assert list(edits["edits"]) == [str(package / "number.py")]
    shown = up.run("edits", "--job", job).stdout
    assert f"number.py  sha256:{edits['edits'][str(package / 'number.py')][:12]}\n" in shown
    (package / "number.py").write_text(NUMBER)
    assert "(the file here has another text)" in up.run("edits", "--job", job).stdout


def fix(up: Rayside, file: Path, comment: str, before: str, after: str) -> Counter[str]:
    """Waits for what fails at the line with this comment, edits that line, and has it run again."""
    waiting(up, 1)
    lines = file.read_text().splitlines(keepends=True)
    file.write_text(
        "".join(line.replace(before, after) if f"# {comment}" in line else line for line in lines)
    )
    return retried(up)


def printed(output: str) -> list[str]:
    return [line.partition("kind ")[2] for line in output.splitlines() if "kind " in line]


def test_each_kind_of_call_is_made_again_with_its_own_inputs(up: Rayside, tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(KINDS)
    job = submit(up, tmp_path)
    for kind in ("plain", "async", "stream", "closed"):
        assert fix(up, file, kind, "int(", "float(") == {"returned": 1}, kind
    assert printed(end(up, job)) == [
        "plain [2, 5.5]",  # The failed call has added to the actor's list already.
        "others ['quick', 'quick', 'quick']",
        *("async 2.5", "stream [1, 2.5, 3.0]", "closed 2.5"),
    ]
    # What nobody debugged at once left a capsule, and waited on.
    assert len(up.json("failures", "--job", job)) == 4


# An exception from a function that is called, a breakpoint's line behind it, and a worker that can be ended.
REFUSED = """\
import os
import ray

def parse(text):
    return int(text)

@ray.remote(max_retries=0)
def work(text, more=0):
    value = parse(text)
    return value + more  # stops

ray.init()
results = []
for text in ("1.5", "2.5", "3.5"):
    try:
        results.append(ray.get(work.remote(text)))
    except Exception as error:
        results.append(type(error).__name__)
print("kind", *results)
"""


async def test_what_cannot_run_again_is_refused_in_one_sentence(up: Rayside, tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(REFUSED)
    identity = up.target.access.identity
    job = await asyncio.to_thread(submit, up, tmp_path)
    client = await dap.Client.connect("127.0.0.1", identity.ports.relay)
    options = {"token": identity.token_file.read_text().strip(), "job": job}
    await client.attach(exception_filters=["uncaught"], options=options, no_delay=False)
    person = Session(client)
    stop = await person.event("stopped", reason="exception")

    async def refused(text: str, path: Path = file) -> str:
        files = [{"path": str(path), "text": text}]
        answer = await person.request("retry", threadId=stop["threadId"], files=files)
        (row,) = answer["retried"]
        assert (answer["edited"], row["outcome"], row["task"]) == ([], "refused", "work")
        return str(row["why"])

    assert await refused(REFUSED.replace("int(text)", "int(text")) == "program.py:5: '(' was never closed"
    assert "decorators of work" in await refused(REFUSED.replace("max_retries=0", "max_retries=1"))
    assert "is no file of this job" in await refused("x = 1\n", tmp_path / "other.py")
    frames = await person.frames(stop)
    assert [frame["canRestart"] for frame in frames] == [False, True]
    with pytest.raises(RequestFailed, match="from its outermost frame: choose the last one"):
        await person.request("restartFrame", frameId=frames[0]["id"])
    wrong = REFUSED.replace("def work(text, more=0)", "def work(text, more, most)")
    assert "work can't take the inputs" in await refused(wrong)

    # Two ask at once: one of them is told so. The breakpoint stops at its line of the edited text.
    edited = REFUSED.replace("    return int(text)", "    # more\n    return float(text)")
    lines = edited.splitlines()
    line = next(number for number, each in enumerate(lines, 1) if each.endswith("# stops"))
    await person.request("setBreakpoints", source={"path": str(file)}, breakpoints=[{"line": line}])
    files = [{"path": str(file), "text": edited}]
    both = [
        person.client.request("retry", {"threadId": stop["threadId"], "files": files, "within": 60})
        for _ in range(2)
    ]
    at_line = asyncio.ensure_future(person.event("stopped", reason="breakpoint"))
    answers = await asyncio.gather(*both)
    assert sorted(answer["retried"][0]["outcome"] for answer in answers) == ["refused", "running"]
    stop = await at_line
    assert (await person.frames(stop))[0]["line"] == line
    assert await person.evaluate(stop, "value") == "1.5"
    await person.request("setBreakpoints", source={"path": str(file)}, breakpoints=[])
    await person.resume(stop)
    await client.disconnect()
    # Who comes later runs the edited code from the beginning.
    assert printed(await asyncio.to_thread(end, up, job)) == ["1.5 2.5 3.5"]


CANCELLED = """
import time
from pathlib import Path

import ray

ray.init()


@ray.remote(max_retries=0)
def work(text):
    return int(text)


@ray.remote
class Later:
    async def work(self, text):
        return int(text)


later = Later.remote()
references = [work.remote("a"), later.work.remote("a")]
while not Path(CANCEL).exists():
    time.sleep(0.1)
for each in references:
    ray.cancel(each)
print("kind", *(ray.wait([each], timeout=60)[0] == [each] for each in references), flush=True)
while Path(CANCEL).exists():
    time.sleep(0.1)
"""


def test_a_task_that_is_cancelled_where_it_failed_waits_for_nobody(up: Rayside, tmp_path: Path) -> None:
    folder, cancel = tmp_path / "job", tmp_path / "cancel"
    folder.mkdir()
    (folder / "program.py").write_text(CANCELLED.replace("CANCEL", repr(str(cancel))))
    job = submit(up, folder)
    waiting(up, 2)
    cancel.touch()
    assert until(lambda: printed(up.run("logs", "--job", job).stdout), bool, PATIENCE) == ["True True"]
    refused = up.run("retry", "--job", job)
    assert refused.returncode and "no task of this job has failed and waits" in refused.stderr
    cancel.unlink()
    end(up, job)


async def test_a_worker_that_dies_while_its_call_is_made_again_is_told(up: Rayside, tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(REFUSED)
    job = await asyncio.to_thread(submit, up, tmp_path)
    await asyncio.to_thread(waiting, up, 1)
    file.write_text(REFUSED.replace("return int(text)", "os._exit(1)"))
    answer = await asyncio.to_thread(up.json, "retry", code=1)
    assert [(row["outcome"], row["why"]) for row in answer["retried"]] == [("raised", "its worker has ended")]
    await asyncio.to_thread(up.target.access.require().stop, job)
