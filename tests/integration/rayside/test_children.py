"""Tests children of debuggees in real processes: forks and Pythons that are started stop as their parents do.

Runs on each Python from 3.10 to 3.14 that is on PATH or in pyenv's folder, with this one's debugpy.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bootstrap.settings import ROOT
from rayside.dap.framing import Message
from rayside.worker.debug_config import VARIABLE, Config
from tests.integration.pythons import each_python, hows_environment, python_of
from tests.integration.relay_debuggees import Process, Session, relay_over

this_python = pytest.mark.parametrize(("version", "how"), [("3.11", "settrace")])

FORKS = """\
import os, sys, time

def work(n):
    total = n + 1  # work
    return total

def child(n):
    work(n)
    breakpoint()
    again = work(n + 10)  # after
    os._exit(again)

for n in range(2):
    pid = os.fork()
    if not pid:
        child(n)
    print("child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
print("parent", work(100), flush=True)
"""


# What is started: a module, which is a program as well.
TOOL = """\
import os, sys

def work(n):
    total = n + 1  # tool
    return total

def main():
    n = int(sys.argv[1])
    if n > 1:
        import subprocess
        subprocess.run([sys.executable, __file__, str(n - 1)], check=True)
    print("tool", work(n), [name for name in os.environ if name.startswith("RAYSIDE_A")], flush=True)

if __name__ == "__main__":
    main()
"""
STARTS = """\
import subprocess, sys, tool
subprocess.run([sys.executable, tool.__file__, "2"], check=True)
print("parent", tool.work(100), flush=True)
"""
POOLS = """\
import multiprocessing, sys, tool
with multiprocessing.get_context(METHOD).Pool(2) as pool:
    print("pool", sorted(pool.map(tool.work, range(4), chunksize=1)), flush=True)
"""
# Who asks the parent, and what it is told: a child, a process that is no child any more, another user's.
STRANGERS = """\
import os, subprocess, sys
ASK = '''
import os, socket, sys, time
sys.path.insert(0, sys.argv[1])
from rayside.worker import child
from rayside.worker.debug_config import Config
parent, name = os.getpid(), Config.read().parents.split(":")[0]
if sys.argv[2] == "orphan":
    if os.fork():
        os._exit(0)
    while os.getppid() == parent:
        time.sleep(0.01)
if sys.argv[2] == "stranger" and os.geteuid() == 0:
    os.setuid(65534)
if sys.argv[2] in ("child", "sandboxed") or os.geteuid() or os.getppid() != parent:
    with socket.socket(socket.AF_UNIX) as connection:
        print(sys.argv[2], sorted(child._invitation(connection, name) or []), flush=True)
'''
hook, *_ = os.environ["PYTHONPATH"].split(os.pathsep)
apart = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
for who in ("child", "orphan", "stranger", "sandboxed"):
    environment = {**os.environ, "PYTHONPATH": ""}
    command = [sys.executable, "-c", ASK, hook, who]
    subprocess.run(apart * (who == "sandboxed") + command, env=environment, check=True)
"""
# It ends when the folder has a file `end`; until then it works.
LASTS = """\
import os, sys, time
pid = os.fork()
def work(n):
    return n  # work
while not os.path.exists(os.path.join(os.path.dirname(__file__), "end")):
    work(os.getpid())
    time.sleep(0.05)
if pid:
    print("child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
else:
    os._exit(7)
"""
STARTS_FOR_OTHERS = """\
import os, subprocess, sys, tool
subprocess.run([sys.executable, tool.__file__, "1"], check=True, preexec_fn=os.setsid)
if not os.fork():
    breakpoint()
    tool.work(1)
    os._exit(0)
os.wait()
print("parent", flush=True)
"""

BECOMES = """\
import os, sys, tool
if not os.fork():
    os.execv(sys.executable, [sys.executable, tool.__file__, "1"])
print("parent", os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""
# The child is told to end while it waits for its debugger, or soon after.
IS_SIGNALLED = """\
import os, signal, sys, time
from rayside.worker import child
signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
asking = child._parent[0][1]._asking
for pause in (0.0, 0.05, 1.0):
    pid = os.fork()
    if not pid:
        time.sleep(20)
        os._exit(1)
    while not asking:
        time.sleep(0.001)
    time.sleep(pause)
    os.kill(pid, signal.SIGTERM)
    print("child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""
# A daemon closes what it has, and opens files of its own.
CLOSES = """\
import os, socket, threading, time
pid = os.fork()
if not pid:
    time.sleep(1)  # what is being sent in that moment can't be held back
    os.closerange(3, 256)
    pairs = [socket.socketpair() for _ in range(40)]
    for _ in range(5):
        thread = threading.Thread(target=time.sleep, args=[0.1])  # which the debugger is told of
        thread.start()
        thread.join()
    strange = 0
    for each in [each for pair in pairs for each in pair]:
        each.setblocking(False)
        try:
            strange += len(each.recv(1000)) or 1
        except BlockingIOError:
            pass
    os._exit(min(strange, 100))
print("child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""
# For a moment the parent has too few descriptors to take its child: none, or one, which the connection takes.
IS_FULL = """\
import os, resource, subprocess, sys, time, tool
limits = resource.getrlimit(resource.RLIMIT_NOFILE)
child = subprocess.Popen([sys.executable, tool.__file__, "1"])
resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 1, limits[1]))
taken = []
try:
    while True:
        taken.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
for _ in range({free}):
    os.close(taken.pop())
time.sleep(1)
resource.setrlimit(resource.RLIMIT_NOFILE, limits)
child.wait()
subprocess.run([sys.executable, tool.__file__, "1"], check=True)
"""


def line(script: str, marker: str) -> int:
    return next(n for n, text in enumerate(script.splitlines(), 1) if text.endswith(f"# {marker}"))


@asynccontextmanager
async def debugged(
    folder: Path, version: str, how: str, script: str, *markers: str, **options: Any
) -> AsyncIterator[tuple[Process, Session]]:
    """Runs a script with breakpoints at its markers; an editor is attached to it."""
    environment = hows_environment(how)
    async with relay_over(folder) as setting:
        breakpoints = {
            "job.py": [line(script, marker) for marker in markers],
            "tool.py": [line(TOOL, "tool")],
        }
        session = await setting.attach(breakpoints, filters=["uncaught"], **options)
        await setting.cluster.start(TOOL, name="tool.py", count=0)
        (process,) = await setting.cluster.start(script, python=python_of(version), environment=environment)
        yield process, session


async def stopped(session: Session, process: Process, value: str, *, child: bool) -> Message:
    """Returns the next stop, whose innermost frame has that in `n`."""
    stop = await session.event("stopped")
    assert (stop["ray"]["pid"] != process.process.pid) is child
    assert stop["ray"]["task"].startswith("child ") is child
    assert await session.evaluate(stop, "n") == value
    return stop


@each_python
async def test_a_fork_stops_at_breakpoints_and_ends_as_it_would(
    version: str, how: str, tmp_path: Path
) -> None:
    async with debugged(tmp_path, version, how, FORKS, "work") as (process, session):
        for n in range(2):
            for value in (n, n, n + 10):
                stop = await stopped(session, process, str(value), child=True)
                await session.resume(stop)
        stop = await stopped(session, process, "100", child=False)
        await session.resume(stop)
        assert await process.end() == ["child 11", "child 12", "parent 101"]


@each_python
async def test_a_python_that_is_started_stops_and_so_does_one_that_it_starts(
    version: str, how: str, tmp_path: Path
) -> None:
    async with debugged(tmp_path, version, how, STARTS) as (process, session):
        for value, child in (("1", True), ("2", True), ("100", False)):
            stop = await stopped(session, process, value, child=child)
            await session.resume(stop)
        assert await process.end() == ["tool 2 []", "tool 3 []", "parent 101"]


@each_python
@pytest.mark.parametrize("method", ["fork", "spawn"])
async def test_the_processes_of_a_pool_stop(version: str, how: str, method: str, tmp_path: Path) -> None:
    script = POOLS.replace("METHOD", repr(method))
    async with debugged(tmp_path, version, how, script) as (process, session):
        values = []
        for _ in range(4):
            stop = await session.event("stopped")
            assert stop["ray"]["pid"] != process.process.pid
            values.append(int(await session.evaluate(stop, "n")))
            await session.resume(stop)
        assert sorted(values) == [0, 1, 2, 3]
        assert await process.end() == ["pool [1, 2, 3, 4]"]


@this_python
async def test_an_editor_that_wants_no_children_has_them_run_on(
    version: str, how: str, tmp_path: Path
) -> None:
    async with debugged(tmp_path, version, how, STARTS_FOR_OTHERS, children=False) as (process, session):
        assert await process.end() == ["tool 2 []", "parent"]
        await session.nothing("stopped", 0.0)


@this_python
async def test_a_fork_that_only_becomes_another_program_is_no_debuggee(
    version: str, how: str, tmp_path: Path
) -> None:
    async with debugged(tmp_path, version, how, STARTS_FOR_OTHERS) as (process, session):
        # The program itself, then the fork: at its `breakpoint()`, and in the module.
        for value in ("1", None, "1"):
            stop = await session.event("stopped")
            if value is not None:
                assert await session.evaluate(stop, "n") == value
            await session.resume(stop)
        assert await process.end() == ["tool 2 []", "parent"]


@this_python
async def test_children_are_there_for_the_next_editor_and_run_on_without_one(
    version: str, how: str, tmp_path: Path
) -> None:
    environment = hows_environment(how)
    async with relay_over(tmp_path) as setting:
        breakpoints = {"job.py": [line(LASTS, "work")]}
        first = await setting.attach(breakpoints)
        (process,) = await setting.cluster.start(LASTS, python=python_of(version), environment=environment)
        pids = {(await first.event("stopped"))["ray"]["pid"] for _ in range(2)}
        assert len(pids) == 2
        await first.client.disconnect()
        second = await setting.attach(breakpoints)
        stops = [await second.event("stopped") for _ in range(2)]
        assert {stop["ray"]["pid"] for stop in stops} == pids
        names = (await second.threads()).values()
        assert sum(name.startswith("child ") for name in names) == 1
        Path(process.script).with_name("end").touch()
        await second.client.disconnect()
        assert await process.end() == ["child 7"]


@this_python
async def test_nobody_but_a_child_of_the_same_user_is_told_how_to_be_debugged(
    version: str, how: str, tmp_path: Path
) -> None:
    async with debugged(tmp_path, version, how, STRANGERS) as (process, _):
        invitation = ["by_driver", "host", "token", "user"]
        nothing = ["orphan []", "stranger []", "sandboxed []"]
        assert await process.end() == [f"child {invitation}", *nothing]


@this_python
async def test_a_fork_that_becomes_another_python_stops_there(version: str, how: str, tmp_path: Path) -> None:
    async with debugged(tmp_path, version, how, BECOMES) as (process, session):
        stop = await stopped(session, process, "1", child=True)
        await session.resume(stop)
        assert await process.end() == ["tool 2 []", "parent 0"]


@this_python
async def test_a_signal_ends_a_fork_as_it_would_without_a_debugger(
    version: str, how: str, tmp_path: Path
) -> None:
    async with debugged(tmp_path, version, how, IS_SIGNALLED) as (process, _):
        assert await process.end() == ["child 3"] * 3


@this_python
async def test_what_a_fork_opens_in_place_of_our_sockets_stays_its_own(
    version: str, how: str, tmp_path: Path
) -> None:
    async with debugged(tmp_path, version, how, CLOSES) as (process, session):
        assert await process.end() == ["child 0"]
        await session.event("thread", reason="exited")


@pytest.mark.parametrize("free", [0, 1])
@this_python
async def test_a_parent_that_has_too_few_descriptors_for_a_moment_takes_its_child(
    version: str, how: str, free: int, tmp_path: Path
) -> None:
    async with debugged(tmp_path, version, how, IS_FULL.format(free=free)) as (process, session):
        for _ in range(2):
            stop = await stopped(session, process, "1", child=True)
            await session.resume(stop)
        assert await process.end() == ["tool 2 []"] * 2


def test_a_python_whose_parent_has_no_debugger_imports_nothing_of_ours(tmp_path: Path) -> None:
    (tmp_path / "secrets.py").write_text("KEY = 'its own'")
    (tmp_path / "program.py").write_text("import secrets; print(secrets.KEY)")
    start = ROOT / "rayside" / "worker" / "start.py"
    (tmp_path / "sitecustomize.py").write_text(f"import runpy; runpy.run_path({str(start)!r})")
    nobody = Config(parents="rayside-0-nobody").text()
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), VARIABLE: nobody}
    command = [sys.executable, str(tmp_path / "program.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("its own\n", "")


def test_a_python_whose_parent_takes_nobody_begins_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("print('begins')")
    start = ROOT / "rayside" / "worker" / "start.py"
    (tmp_path / "sitecustomize.py").write_text(f"import runpy; runpy.run_path({str(start)!r})")
    name = f"rayside-test-{os.getpid()}"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), VARIABLE: Config(parents=name).text()}
    with contextlib.ExitStack() as stack:
        standing_still = stack.enter_context(socket.socket(socket.AF_UNIX))
        standing_still.bind(f"\0{name}")
        standing_still.listen(1)
        for _ in range(10):
            asking = stack.enter_context(socket.socket(socket.AF_UNIX))
            asking.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                asking.connect(f"\0{name}")
        command = [sys.executable, str(tmp_path / "program.py")]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=60
        )
    assert (done.stdout, done.stderr) == ("begins\n", "")


def test_a_child_asks_nobody_that_it_does_not_descend_from(tmp_path: Path) -> None:
    name = f"rayside-test-{os.getpid()}"
    answers = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.bind('\\0' + sys.argv[1]); s.listen();"
        "print(flush=True); s.accept()[0].sendall(b'{}\\n'); sys.stdin.read()"
    )
    asks = (
        "import socket, sys; from rayside.worker import child;"
        "print(child._invitation(socket.socket(socket.AF_UNIX), sys.argv[1]))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", answers, name], **pipes) as squatter:  # type: ignore[call-overload]
        squatter.stdout.readline()
        command = [sys.executable, "-W", "ignore", "-c", asks, name]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "None\n"
