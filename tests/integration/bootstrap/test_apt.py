"""Tests that apt-get waits while another program holds a lock of apt's or dpkg's, and says for which.

The apt is the machine's own, on folders of the test's, without any source of packages: it needs neither root
nor network.
"""

from __future__ import annotations

import contextlib
import queue
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from bootstrap.errors import AptBusy
from bootstrap.steps import apt
from rayside.errors import CommandFailed
from rayside.system.shell import Shell
from tests.patience import PATIENCE

pytestmark = [
    pytest.mark.gate,
    pytest.mark.skipif(shutil.which("apt-get") is None, reason="no apt-get: not Debian, nor Ubuntu"),
]

LOCKS = ["lists/lock", "dpkg/lock-frontend", "dpkg/lock", "archives/lock"]
# Takes a lock as apt and dpkg do, says so, and holds it until a line comes or its input ends.
HOLD = """
import fcntl, sys
with open(sys.argv[1], "w") as lock:
    fcntl.lockf(lock, fcntl.LOCK_EX)
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provides the folder that apt and dpkg keep everything in."""
    for folder in ("lists/partial", "archives/partial", "dpkg"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "dpkg" / "status").touch()
    configuration = tmp_path / "apt.conf"
    configuration.write_text(
        f'Dir::State "{tmp_path}";\n'
        f'Dir::State::lists "{tmp_path}/lists/";\n'
        f'Dir::State::status "{tmp_path}/dpkg/status";\n'
        f'Dir::Cache "{tmp_path}";\n'
        f'Dir::Cache::archives "{tmp_path}/archives/";\n'
        'Dir::Etc::sourcelist "/dev/null";\n'
        'Dir::Etc::sourceparts "/dev/null";\n'
    )
    monkeypatch.setenv("APT_CONFIG", str(configuration))
    return tmp_path


@contextlib.contextmanager
def lock_holder(lock: Path) -> Iterator[subprocess.Popen[str]]:
    """Runs another program that has the lock; a line to its input, or the end of the block, ends it."""
    command = [sys.executable, "-c", HOLD, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout
        assert program.stdout.readline() == "held\n"
        yield program
        if program.poll() is None:
            release(program)


def release(program: subprocess.Popen[str]) -> None:
    """Releases the program's lock: it is free when this returns."""
    program.communicate("\n")


class Installing:
    """Runs `install` of no package in a thread of its own; has what it reports, and its end."""

    def __init__(self) -> None:
        self.ended: Future[None] = Future()
        self._reported: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._install, daemon=True).start()

    def _install(self) -> None:
        try:
            apt.install(Shell(), self._reported.put, patience=PATIENCE)
            self.ended.set_result(None)
        except BaseException as error:  # raised where the end is waited for
            self.ended.set_exception(error)

    def waits(self) -> str:
        """Returns what it reports while it waits, once it does."""
        while not (text := self._reported.get(timeout=PATIENCE)).startswith("waiting"):
            pass
        return text


@pytest.mark.parametrize("name", LOCKS)
def test_it_says_that_it_waits_and_goes_on_when_the_lock_is_free(system: Path, name: str) -> None:
    with lock_holder(system / name) as program:
        installing = Installing()
        words = installing.waits()
        assert "lock" in words and str(system) in words
        assert not installing.ended.done()
        release(program)
        installing.ended.result(PATIENCE)


def test_what_it_waited_for_in_vain_is_told(system: Path) -> None:
    with lock_holder(system / "lists" / "lock"):
        began = time.monotonic()
        with pytest.raises(AptBusy, match=rf"for 1 s: Could not get lock {system}/lists/lock"):
            apt.install(Shell(), lambda _: None, patience=1.0)
        assert time.monotonic() - began < PATIENCE


def test_what_apt_get_can_not_do_is_not_tried_again(system: Path) -> None:
    with pytest.raises(CommandFailed, match="Unable to locate package there-is-no-such-package"):
        apt.install(Shell(), lambda _: None, "there-is-no-such-package", patience=PATIENCE)
