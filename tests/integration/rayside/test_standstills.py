"""Tests on each Python that neither a debugged process nor a thread of it stands still for good.

Little is left to chance: where frames are listed, a collection of garbage begins at each object that is made,
lets other threads run, and those begin and end all the time; and a thread begins in the very moment in which
it is taken for one that Python did not start.
"""

from __future__ import annotations

import signal
import socket
import subprocess
from pathlib import Path

import pytest

from bootstrap.settings import ROOT
from rayside.worker.listener import _notice_when_gone
from tests.integration.pythons import HOWS, each_python, hows_environment, python_of
from tests.integration.rayside.test_compiled import played

PATIENCE = 240.0  # seconds; only a process that stands still takes so long
LISTS = """\
import _thread, gc, sys, threading, time
import debugpy

debugpy.configure(subProcess=False)
debugpy.listen(("127.0.0.1", 0))
sys.path.insert(0, sys.argv[1])
from rayside.worker import tracing, workarounds
workarounds.apply()

tracing.sleep()
tracing.wake_by_itself()

def waits():
    released.wait()

def comes_and_goes():
    while not released.is_set():
        thread = threading.Thread(target=time.sleep, args=(0.001,))
        thread.start()
        thread.join()

def is_told(phase, _):
    # A finalizer might do so.
    if phase == "start" and lists:
        time.sleep(0.01)

def own():
    return sys._current_frames()[threading.get_ident()]

released, lists = threading.Event(), []
for target in [waits] * 10 + [comes_and_goes] * 2:
    threading.Thread(target=target, daemon=True).start()
gc.callbacks.append(is_told)
thresholds = gc.get_threshold()
for _ in range(20):
    # Other frames than those of before, for whose objects there is still a need.
    more = [threading.Thread(target=waits, daemon=True) for _ in range(10)]
    for thread in more:
        thread.start()
    lists.append(True)
    gc.set_threshold(1)
    frames = sys._current_frames()
    gc.set_threshold(*thresholds)
    lists.clear()
    assert frames[threading.get_ident()] is sys._getframe()
    assert {thread.ident for thread in more} <= set(frames)
assert own().f_code is own.__code__
assert gc.isenabled()
gc.disable()
sys._current_frames()
assert not gc.isenabled()
_thread.start_new_thread(sys._current_frames, ())
released.set()
print("went on", flush=True)
"""


# Whoever lists frames before the hook does is asked for whether garbage was collected then.
LISTS_EARLY = """\
import gc, sys

lists, collects = sys._current_frames, []

def noted():
    collects.append(gc.isenabled())
    return lists()

sys._current_frames = noted
sys.path.insert(0, sys.argv[1])
from rayside.worker import attach

attach.listen("127.0.0.1", b"the token")
attach.tracing.wake()
assert collects
print(any(collects), flush=True)
"""

BEGINS = """\
import _thread, sys, threading, time
import debugpy

debugpy.configure(subProcess=False)
debugpy.listen(("127.0.0.1", 0))
sys.path.insert(0, sys.argv[1])
from rayside.worker import tracing, workarounds
workarounds.apply()

tracing.sleep()
released = threading.Event()
thread = threading.Thread(target=released.wait)
thread.start()
known = threading._active
# It runs, and does not know yet that it is to be known.
with threading._active_limbo_lock:
    del known[thread.ident]
    other = threading.Thread(target=lambda: tracing._set_trace(tracing._gate, {thread.ident}))
    other.start()
    time.sleep(0.3)
    known[thread.ident] = thread
other.join()
assert known[thread.ident] is thread, known
# One that Python did not start is known from then on.
began = []
def runs():
    began.append(threading.get_ident())
    released.wait()
# Threads that are started by pydevd's function in place of it introduce themselves.
start = sys.modules["_pydev_bundle.pydev_monkey"].get_original_start_new_thread(_thread)
for _ in range(2):
    start(runs, ())
while len(began) < 2:
    time.sleep(0.01)
tracing._set_trace(tracing._gate, set(began))
assert all(type(known[ident]) is threading._DummyThread and known[ident].ident == ident for ident in began)
tracing._set_trace(tracing._gate, {1})
assert 1 not in known
released.set()
print("went on", flush=True)
"""

ENDS = """\
import sys, threading, time
import debugpy

debugpy.configure(subProcess=False)
debugpy.listen(("127.0.0.1", 0))
sys.path.insert(0, sys.argv[1])
from rayside.worker import tracing, workarounds
workarounds.apply()

sys.addaudithook(lambda event, arguments: None)  # as the hook does

def works():
    end = time.perf_counter() + 0.0005
    while time.perf_counter() < end:
        pass

def begins_and_ends():
    while time.monotonic() < until:
        threads = [threading.Thread(target=works) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

until = time.monotonic() + 4
others = [threading.Thread(target=begins_and_ends) for _ in range(3)]
for other in others:
    other.start()
while time.monotonic() < until:
    tracing.sleep()
for other in others:
    other.join()
print("went on", flush=True)
"""

SETS = """\
import sys, threading, time

if "before" in sys.argv:  # as Ray's hook does; the relay has it applied later
    sys.path.insert(0, sys.argv[1])
    from rayside.worker import tracing, workarounds
    workarounds.apply()
import debugpy

debugpy.configure(subProcess=False)
debugpy.listen(("127.0.0.1", 0))
sys.path.insert(0, sys.argv[1])
from rayside.worker import tracing, workarounds
workarounds.apply()

tracing.wake()
within, errors = set(), []

def is_told(event, _):
    if event != "sys.settrace":
        return
    time.sleep(0.002)
    if within:
        within.clear()
        try:
            sys.settrace(None)
        except RuntimeError as error:
            errors.append(str(error))

sys.addaudithook(is_told)
ran = []
threads = [threading.Thread(target=ran.append, args=(number,)) for number in range(40)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert sorted(ran) == list(range(40)), ran
# What an audit hook does within itself is wrong for good, where Python says so. It says so of all threads
# together, so that one of pydevd's own, which comes to it at that moment, may end that state in between.
for _ in range(20):
    within.add(1)
    sys.settrace(None)
    if errors:
        break
assert bool(errors) == (sys.version_info < (3, 12)), errors
print("went on", flush=True)
"""

CANCELLED = """
import signal
signal.signal(signal.SIGUSR1, signal.default_int_handler)

def work(number):
    result = number  # work
    return result

def call(number):
    try:
        return work(number)
    except KeyboardInterrupt:
        return "cancelled"
"""


def output(program: str, version: str, how: str, folder: Path, *arguments: str) -> tuple[int, str]:
    """Returns how a program ended on that Python, and what it printed; a traceback fails the test."""
    script = folder / "program.py"
    script.write_text(program)
    done = subprocess.run(
        [python_of(version), script, ROOT, *arguments],
        env=hows_environment(how),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout


@each_python
def test_a_process_goes_on_where_its_frames_are_listed_while_threads_begin_and_end(
    version: str, how: str, tmp_path: Path
) -> None:
    assert output(LISTS, version, how, tmp_path) == (0, "went on\n")


@each_python
def test_nothing_is_collected_either_where_pydevd_lists_frames_as_it_starts(
    version: str, how: str, tmp_path: Path
) -> None:
    collects = version != "3.11"  # only that one makes objects there
    assert output(LISTS_EARLY, version, how, tmp_path) == (0, f"{collects}\n")


@pytest.mark.parametrize("version", [version for version, how in HOWS if how == "settrace"])
def test_a_thread_that_begins_is_not_replaced_by_a_stand_in(version: str, tmp_path: Path) -> None:
    assert output(BEGINS, version, "settrace", tmp_path) == (0, "went on\n")


@each_python
def test_a_process_lives_where_all_threads_are_traced_while_some_end(
    version: str, how: str, tmp_path: Path
) -> None:
    assert output(ENDS, version, how, tmp_path) == (0, "went on\n")


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("version", [version for version, how in HOWS if how == "settrace"])
def test_a_thread_runs_that_begins_while_another_begins(version: str, when: str, tmp_path: Path) -> None:
    assert output(SETS, version, "settrace", tmp_path, when) == (0, "went on\n")


@each_python
async def test_a_task_that_is_cancelled_while_it_is_stopped_is_not_taken_for_stopped(
    version: str, how: str, tmp_path: Path
) -> None:
    async with played(version, how, tmp_path, CANCELLED) as process:
        await process.set("work")
        process.begin_call("call", 1)
        await process.stop("work")
        process.running.process.send_signal(signal.SIGUSR1)
        assert await process.result() == "cancelled"
        await process.running.heard("continued")
        process.begin_call("call", 2)
        await process.running.go_on(await process.stop("work"))
        assert await process.result() == 2


def test_a_connection_ends_within_a_minute_where_its_other_machine_has_gone() -> None:
    with socket.socket() as connection:
        _notice_when_gone(connection)
        options = {
            name: connection.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))
            for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")
        }
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert options["TCP_KEEPIDLE"] + options["TCP_KEEPCNT"] * options["TCP_KEEPINTVL"] <= 60
    assert options["TCP_USER_TIMEOUT"] <= 60_000
