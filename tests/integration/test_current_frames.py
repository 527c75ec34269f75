"""Tests on each Python that a debugged process never stands still where the frames of its threads are listed.

Nothing is left to chance: a collection of garbage begins at each object that is made, lets other threads run,
and those begin and end all the time.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.integration.pythons import HOOK, each_python, hows_environment, python_of

PATIENCE = 60.0  # seconds; only a process that stands still takes so long
PROGRAM = """\
import _thread, gc, sys, threading, time
import debugpy

debugpy.configure(subProcess=False)
debugpy.listen(("127.0.0.1", 0))
sys.path.insert(0, sys.argv[1])
from rayside_hook import tracing

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


@each_python
def test_a_process_goes_on_where_its_frames_are_listed_while_threads_begin_and_end(
    version: str, how: str, tmp_path: Path
) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    done = subprocess.run(
        [python_of(version), script, HOOK],
        env=hows_environment(tmp_path / "packages", how),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "went on\n", ""), done.stderr
