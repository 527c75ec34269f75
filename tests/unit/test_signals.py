"""Tests that Ctrl-C is noticed wherever a command waits."""

from __future__ import annotations

import queue
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from invoke.context import Context
from invoke.exceptions import Exit
from invoke.tasks import task

from bootstrap.errors import Interrupted
from bootstrap.signals import signals_noticed
from tasks import Verb

pytestmark = pytest.mark.usefixtures("python_signals")


@contextmanager
def interrupting_no_wait() -> Iterator[None]:
    """Sends a SIGINT that another thread than the main one receives, as if it came just before the wait."""

    def send() -> None:
        time.sleep(0.2)  # until the main thread waits
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    sending = threading.Thread(target=send)
    sending.start()
    began = time.monotonic()
    yield
    sending.join()
    assert time.monotonic() - began < 5


def test_a_ctrl_c_that_interrupts_no_wait_is_noticed() -> None:
    with interrupting_no_wait(), pytest.raises(KeyboardInterrupt), signals_noticed():
        queue.Queue[str]().get(timeout=10)


def test_it_ends_every_verb() -> None:
    @task(klass=Verb)
    def wait(context: Context) -> None:
        queue.Queue[str]().get(timeout=10)

    with interrupting_no_wait(), pytest.raises(Exit) as ended:
        wait(Context())
    assert ended.value.code == Interrupted("", hint="").exit_code
