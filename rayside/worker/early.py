"""Opens the driver of a job to a debugger before its program begins, long before its `ray.init`.

start.py calls it at Python's start. Ray is not imported here, for the program may still set what that
reads: a short-lived process beside this one (scout.py) asks and tells Ray.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from . import attach
from .scout import SAYS, STARTED

# All that the scout does, but for its wait, may take so many seconds; 0.8 s were measured.
_PATIENCE = 15.0


def begin() -> None:
    """Opens the port, publishes it, and waits for a debugger as `--attach-timeout` says; never raises.

    With 0 nothing may wait, and the driver's port opens in `ray.init` alone. Nor does anything happen
    in a program that this one starts.
    """
    timeout = float(os.environ["RAYSIDE_ATTACH_TIMEOUT"])
    if timeout <= 0:
        return
    try:
        with _scout() as scout:
            _open(scout, timeout)
    except ImportError:
        return  # There is no debugpy, as `ray.init` will say.
    except Exception as error:
        attach.say(f"the driver is debugged from ray.init on: {type(error).__name__}: {error}")


def _open(scout: subprocess.Popen[str], timeout: float) -> None:
    attach.load()  # while the scout imports Ray
    import debugpy

    assert scout.stdout is not None and scout.stdin is not None
    ray = _line(scout)
    port = attach.listen(ray["host"], ray["token"].encode())
    attach.opened(port)
    _tell(scout, {"port": port, "pid": os.getpid(), "latest": time.time() + timeout})
    deadline = float(_line(scout)["deadline"])
    latest = min(deadline, time.time() + timeout)
    attach.until_attached(lambda: time.time() >= latest, timeout)
    if debugpy.is_client_connected():
        _tell(scout, {"attached": True})
    else:
        os.environ[STARTED] = repr(latest)


@contextlib.contextmanager
def _scout() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", f"{__package__}.scout"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, **pipes) as scout:  # type: ignore[call-overload]
        try:
            yield scout
        except BaseException:
            scout.kill()
            raise


def _line(scout: subprocess.Popen[str]) -> dict[str, Any]:
    """Returns the scout's next message. Raises RuntimeError where it fails, or takes too long."""
    assert scout.stdout is not None
    too_long = threading.Timer(_PATIENCE, scout.kill)
    too_long.daemon = True
    too_long.start()
    try:
        # Whatever else this Python prints when it starts is none of ours.
        text = next((line for line in scout.stdout if line.startswith(SAYS)), "").removeprefix(SAYS)
    finally:
        too_long.cancel()
    answer: dict[str, Any] = json.loads(text or '{"error": "Ray gave no answer"}')
    if "error" in answer:
        raise RuntimeError(answer["error"])
    return answer


def _tell(scout: subprocess.Popen[str], message: dict[str, Any]) -> None:
    assert scout.stdin is not None
    scout.stdin.write(json.dumps(message) + "\n")
    scout.stdin.flush()
