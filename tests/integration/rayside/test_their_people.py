"""Tests several people on one Ray: whose jobs each sees, and that nobody takes another's task."""

from __future__ import annotations

import asyncio
import json
import tempfile
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bootstrap.settings import ROOT
from rayside.dap.client import Client
from rayside.waiting import until
from tests.integration.conftest import Rayside, apart
from tests.integration.relay_debuggees import Session
from tests.integration.their_ray import TheirRay, their_ray
from tests.patience import PATIENCE

PAUSES = """\
import ray
ray.init()
@ray.remote(num_cpus=0.5)
def work_of_{name}():
    for step in (1, 2):
        breakpoint()
print(ray.get(work_of_{name}.remote()))
"""
# Ray lists a submission's last driver alone: this one comes after the other, and goes when that has ended.
TWO_DRIVERS = "(python main.py; touch {ended}) & python last.py; wait"
LAST = """\
import pathlib, time
from ray.util import state
import ray
while not state.list_tasks(filters=[("name", "=", "work_of_bob"), ("state", "=", "RUNNING")]):
    time.sleep(0.2)
ray.init()
pathlib.Path({last!r}).touch()
while not pathlib.Path({ended!r}).exists():
    time.sleep(0.1)
"""


@contextmanager
def person(name: str, theirs: TheirRay) -> Iterator[Rayside]:
    """Runs somebody's cluster of that Ray until the block ends."""
    folder = Path(tempfile.mkdtemp(prefix="rs-", dir="/tmp"))
    folder.rmdir()
    rayside = Rayside(apart(folder, workspace=False, user=name))
    try:
        done = rayside.run("up", "--address", theirs.url, timeout=400)
        assert done.returncode == 0, done.stdout + done.stderr
        yield rayside
    finally:
        done = rayside.run("down")
    assert done.returncode == 0, done.stdout + done.stderr


def submit(rayside: Rayside, folder: Path, entrypoint: str = "python main.py") -> str:
    """Submits a job of that person's, whose task pauses."""
    name = rayside.settings.user
    code = folder / name
    code.mkdir(exist_ok=True)
    (code / "main.py").write_text(PAUSES.format(name=name))
    how = ["--debug", "--attach-timeout", "0", "--working-dir", str(code), "--entrypoint", entrypoint]
    return str(rayside.json("submit", *how)["submission_id"])


def paused(rayside: Rayside, *options: str) -> list[tuple[str, str]]:
    rows: list[dict[str, Any]] = rayside.json("breakpoints", *options)
    return sorted((row["task"], row.get("user", "")) for row in rows)


@pytest.mark.timeout(900)
def test_each_sees_their_own_jobs_and_takes_nobody_elses_task(tmp_path: Path) -> None:
    with their_ray() as theirs, ExitStack() as people:
        anna, bob = (people.enter_context(person(name, theirs)) for name in ("anna", "bob"))
        annas, bobs = submit(anna, tmp_path), submit(bob, tmp_path)
        own, others = [("work_of_anna", "anna")], [("work_of_bob", "bob")]
        everyones = [*own, *others]
        # Ray's table of tasks may know of a paused one later than its table of workers.
        assert until(lambda: paused(anna, "--everyone"), lambda rows: rows == everyones, 120) == everyones
        assert (paused(anna), paused(bob)) == (own, others)
        told = anna.run("breakpoints").stdout
        assert "Paused in jobs of others: 1 (--everyone lists them)" in told and "work_of_bob" not in told
        status = anna.run("status").stdout
        assert (annas in status, bobs in status, "Jobs of others: 1" in status) == (True, False, True)
        assert bobs in anna.run("status", "--everyone").stdout

        # Bob's is the newest job.
        document = anna.json("debug", "--timeout", "60", "--evaluate", "step", timeout=240)
        assert steps(document) == ["1", "2"]
        assert document["job"] == {"submission_id": annas, "status": "SUCCEEDED"}
        assert paused(bob) == others

        document = asyncio.run(held_while_another_asks(bob, anna, bobs))
        assert steps(document) == ["2"]
        assert document["job"] == {"submission_id": bobs, "status": "SUCCEEDED"}

        last, ended = tmp_path / "last", tmp_path / "ended"
        (tmp_path / "bob" / "last.py").write_text(LAST.format(last=str(last), ended=str(ended)))
        bobs = submit(bob, tmp_path, TWO_DRIVERS.format(ended=ended))
        assert until(last.exists, bool, 120)
        asyncio.run(leaves_out(anna, "bob"))
        document = bob.json("debug", "--job", bobs, "--timeout", "60", "--evaluate", "step", timeout=240)
        assert steps(document) == ["1", "2"]
        assert document["job"] == {"submission_id": bobs, "status": "SUCCEEDED"}


def steps(document: Any) -> list[str]:
    return [stop["evaluated"]["step"] for stop in document["stopped"]]


async def leaves_out(person: Rayside, user: str) -> None:
    """Attaches an editor for all of the person's jobs, which is told of that user's and stops in none."""
    client = await Client.connect("127.0.0.1", person.settings.relay_port)
    await client.attach(options={"token": (person.folder / "token").read_text()}, no_delay=False)
    editor = Session(client, patience=120)
    while f"Jobs of {user} are left out" not in str(await editor.event("output")):
        pass
    # Their paused task is nobody's until the relay has met it, which Ray's tables have to name first.
    assert await asyncio.to_thread(until, partial(paused, person), lambda rows: not rows, 120) == []
    await editor.nothing("stopped")
    await client.disconnect()


async def held_while_another_asks(holder: Rayside, other: Rayside, job: str) -> Any:
    """Holds the one paused task in an editor while another asks for that job by its name, then leaves it.

    Returns the document that the other gets in the end.
    """
    client = await Client.connect("127.0.0.1", holder.settings.relay_port)
    await client.attach(options={"token": (holder.folder / "token").read_text()}, no_delay=False)
    editor = Session(client, patience=60)
    stop = await editor.event("stopped")
    command = [
        str(ROOT / "invokew"),
        "debug",
        "--job",
        job,
        "--timeout",
        "60",
        "--evaluate",
        "step",
        "--json",
    ]
    asks = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, env=other.environment, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
    )
    assert asks.stderr is not None
    told = ""
    while f"{holder.settings.user} debugs it" not in told:
        line = await asyncio.wait_for(asks.stderr.readline(), PATIENCE)
        assert line, f"it has ended: {told}"
        told += line.decode()
    assert await editor.evaluate(stop, "step") == "1"
    await editor.nothing("continued")
    await client.disconnect()
    output, _ = await asyncio.wait_for(asks.communicate(), 240)
    return json.loads(output)
