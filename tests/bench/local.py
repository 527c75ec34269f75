"""Measures target `local`, as ratios within one run: `./invokew bench --name local`. Nothing need be up.

- A warm `up` (all is ready) over `python -c "import invoke, docker"`.
- From knowing a paused debuggee to its `stopped`: our client over a bare exchange of the same requests.
"""

from __future__ import annotations

import asyncio
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bootstrap.settings import ROOT
from rayside.dap.client import STOP_IN_USER_CODE, Client
from rayside.dap.framing import Decoder, encode
from rayside.settings import environment_name

RUNS = 11
KEYS = ("command", "event")
DEBUGGEE = (
    "import debugpy\n"
    "print(debugpy.listen(('127.0.0.1', 0))[1], flush=True)\n"
    "debugpy.wait_for_client()\n"
    "breakpoint()\n"
    "after = True\n"
)


def paired(name: str, ours: Callable[[], float], theirs: Callable[[], float], runs: int = RUNS) -> None:
    """Runs both in turn, as a machine may slow down; prints the medians and the median ratio."""
    pairs = [(ours(), theirs()) for _ in range(runs + 1)][1:]  # the first pair warms up
    ratios = sorted(a / b for a, b in pairs)
    a, b = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(
        f"{name}: ratio {statistics.median(ratios):.2f} (from {ratios[0]:.2f} to {ratios[-1]:.2f}; "
        f"medians {a:.3f} s and {b:.3f} s, {runs} runs)"
    )


def command(*arguments: str, env: dict[str, str] | None = None) -> float:
    """Returns the seconds that a command takes; the command must succeed."""
    began = time.monotonic()
    subprocess.run(arguments, cwd=ROOT, env={**os.environ, **(env or {})}, check=True, capture_output=True)
    return time.monotonic() - began


def attach(exchange: Callable[[int], float]) -> float:
    """Returns the seconds that `exchange` takes on a fresh debuggee that waits at the given port."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "debuggee.py")
        program.write_text(DEBUGGEE)
        with subprocess.Popen(
            [sys.executable, "-X", "frozen_modules=off", program], stdout=subprocess.PIPE, text=True
        ) as debuggee:
            assert debuggee.stdout
            return exchange(int(debuggee.stdout.readline()))


def to_stop(port: int, *, host: str = "127.0.0.1", began: float | None = None, **how: Any) -> float:
    """Returns the seconds until our client is told of a stop, from `began` or now on; then it leaves."""

    async def run(began: float) -> float:
        client = await Client.connect(host, port)
        await client.attach(**how)
        while (event := await client.events.get()) and event["event"] != "stopped":
            pass
        assert event, "the session ended without a stop"
        seconds = time.monotonic() - began
        await client.disconnect()
        return seconds

    return asyncio.run(run(time.monotonic() if began is None else began))


def bare(port: int) -> float:
    began = time.monotonic()
    decoder, messages = Decoder(), list[dict[str, Any]]()
    with socket.create_connection(("127.0.0.1", port)) as connection:

        def say(seq: int, name: str, **arguments: object) -> None:
            request = {"seq": seq, "type": "request", "command": name, "arguments": arguments}
            connection.sendall(encode(request))

        def hear(kind: str, name: str) -> None:
            while not any(
                message["type"] == kind and message.get(key) == name for message in messages for key in KEYS
            ):
                data = connection.recv(65536)
                assert data, f"the debuggee ended before it sent {name}"
                messages.extend(decoder.feed(data))

        say(1, "initialize", clientID="bench", adapterID="python")
        hear("response", "initialize")
        say(2, "attach", subProcess=False, **STOP_IN_USER_CODE)
        hear("event", "initialized")
        say(3, "setExceptionBreakpoints", filters=[])
        hear("response", "setExceptionBreakpoints")
        say(4, "configurationDone")
        hear("event", "stopped")
        seconds = time.monotonic() - began
        say(5, "disconnect", terminateDebuggee=False)
        hear("response", "disconnect")
    return seconds


def main() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        settings = {
            "state_folder": f"{folder}/s",
            "dashboard_port": "18266",
            "ray_client_port": "11002",
            "target": "local",
            "workspace": "false",
        }
        env = {environment_name(key): value for key, value in settings.items()}
        try:
            command("./invokew", "up", env=env)
            paired(
                "warm up over importing invoke and docker",
                lambda: command("./invokew", "up", env=env),
                lambda: command(sys.executable, "-c", "import invoke, docker"),
            )
        finally:
            command("./invokew", "down", env=env)
    paired("attach to stopped over a bare DAP exchange", lambda: attach(to_stop), lambda: attach(bare))


if __name__ == "__main__":
    main()
