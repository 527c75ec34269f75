"""Tests processes: their output, their end, and how those that outlive a command are found again."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from rayside.errors import CommandFailed, Interrupted, MissingProgram
from rayside.ports import port_holder
from rayside.system import processes, shell
from rayside.system.shell import Shell
from rayside.waiting import until
from tests.at_once import AT_ONCE

pytestmark = pytest.mark.gate


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_output_arrives_line_by_line_and_whole() -> None:
    lines: list[str] = []
    code = "import sys; print('a'); print('b'); print('c', file=sys.stderr)"
    outcome = Shell().run(python(code), on_line=lines.append)
    assert (outcome.code, outcome.out, outcome.err) == (0, "a\nb", "c")
    assert sorted(lines) == ["a", "b", "c"]


def test_a_failure_shows_the_command_to_paste_and_what_it_said() -> None:
    with pytest.raises(CommandFailed) as caught:
        Shell().run(python("print('why'); raise SystemExit(3)"))
    assert "-c 'print('\"'\"'why'\"'\"'); raise SystemExit(3)'" in caught.value.message
    assert "exit code 3\nwhy" in caught.value.message
    assert Shell().run(python("raise SystemExit(3)"), check=False).code == 3


def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(MissingProgram, match="no-such-program"):
        Shell().run(["no-such-program"])


def test_interrupt_ends_even_what_ignores_it_with_its_children() -> None:
    runner = Shell()
    ready = threading.Event()
    stubborn = (
        "import signal, subprocess, sys, time\n"
        "for number in (signal.SIGINT, signal.SIGTERM): signal.signal(number, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    pids: list[int] = []

    def note_pid(line: str) -> None:
        pids.append(int(line))
        ready.set()

    failures: list[BaseException] = []

    def run() -> None:
        try:
            runner.run(python(stubborn), on_line=note_pid)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(20)
    began = time.monotonic()
    runner.interrupt()
    thread.join(10)
    assert time.monotonic() - began < AT_ONCE
    assert isinstance(failures[0], Interrupted)
    # Nobody waits for the child's child: it was killed with its group, and takes its time to be gone.
    assert until(lambda: _is_gone(pids[0]), bool, 60)
    with pytest.raises(Interrupted):
        runner.run(["true"])


def test_a_spawned_process_outlives_its_parent_and_is_found_by_mark_and_ended(tmp_path: Path) -> None:
    value = str(tmp_path)
    log = tmp_path / "a log"
    spawn = (
        "import os, sys; from pathlib import Path; from rayside.system.shell import Shell\n"
        "code = 'import subprocess, sys, time; "
        'subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env={}); '
        "print(1, flush=True); time.sleep(600)'\n"
        "print(Shell().spawn([sys.executable, '-c', code], env={**os.environ, 'RS_MARK': sys.argv[1]},"
        " log=Path(sys.argv[2])))\n"
    )
    root = Path(shell.__file__).parents[2]
    done = subprocess.run(
        [*python(spawn), value, str(log)], cwd=root, capture_output=True, text=True, check=True
    )
    pid = int(done.stdout)
    assert processes.alive(pid, processes.created(pid))
    assert not processes.alive(pid, processes.created(pid) - 60)
    while log.read_text() != "1\n":
        os.sched_yield()
    assert log.stat().st_mode & 0o777 == 0o600
    # The child has an empty environment: it is found as a descendant.
    assert len(processes.marked("RS_MARK", value)) == 2
    assert len(processes.end(lambda: processes.marked("RS_MARK", value), patience=5)) == 2
    assert processes.marked("RS_MARK", value) == []
    assert not processes.alive(pid, processes.created(pid))


def test_our_own_ancestors_are_never_found(monkeypatch: pytest.MonkeyPatch) -> None:
    parents = psutil.Process().parents()
    shared = set(parents[0].environ()) & {"PATH", "HOME"}
    for name in shared:
        pids = {process.pid for process in processes.marked(name, parents[0].environ()[name])}
        assert os.getpid() not in pids
        assert not pids & {parent.pid for parent in parents}


def test_who_holds_a_port_is_named() -> None:
    import socket

    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        process = port_holder(port)
        assert process is not None
        assert process.pid == os.getpid()
        assert process.program == psutil.Process().name()
    assert port_holder(port) is None


def test_one_programs_output_is_anothers_input() -> None:
    """The second program gets all of it, whatever the first one prints elsewhere."""
    big = "import sys; sys.stderr.write('noise\\n' * 50_000); sys.stdout.write('x' * 3_000_000)"
    count = "import sys; print(len(sys.stdin.read()))"
    assert Shell().run(python(count), feed=python(big)).out == "3000000"


def test_it_is_said_which_of_two_joined_programs_failed() -> None:
    sink = "import sys; sys.stdin.read()"
    with pytest.raises(CommandFailed, match="exit code 3\nno image") as caught:
        Shell().run(python(sink), feed=python("import sys; sys.exit(sys.stderr.write('no image') and 3)"))
    assert "no image" in caught.value.message
    with pytest.raises(CommandFailed, match="exit code 4"):
        Shell().run(python("raise SystemExit(4)"), feed=python("print('x' * 3_000_000)"))


def _is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
