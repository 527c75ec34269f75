"""Tests that Ctrl-C is noticed wherever a command waits."""

from __future__ import annotations

import queue
import signal
import threading
import time

import pytest
from invoke.context import Context
from invoke.exceptions import Exit
from invoke.tasks import task

from rayside.errors import Interrupted
from tasks import Verb

pytestmark = pytest.mark.usefixtures("python_signals")


def test_a_ctrl_c_that_interrupts_no_wait_is_noticed_and_ends_every_verb() -> None:
    def send() -> None:
        time.sleep(0.2)  # until the main thread waits
        # Another thread than the main one receives it, as if it came just before the wait.
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    @task(klass=Verb)
    def wait(context: Context) -> None:
        queue.Queue[str]().get(timeout=10)

    sending = threading.Thread(target=send)
    sending.start()
    began = time.monotonic()
    with pytest.raises(Exit) as ended:
        wait(Context())
    sending.join()
    assert time.monotonic() - began < 5
    assert ended.value.code == Interrupted("", hint="").exit_code
