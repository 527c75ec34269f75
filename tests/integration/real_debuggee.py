"""Real Python processes that pause as Ray's workers do, and a real relay, for tests without a Ray cluster.

They do what was measured in Ray: `breakpoint()` opens debugpy on a separate port, reports that, waits for
a client, and then stops in the caller's frame; the debugger's module is `ray.util.debugpy`.

As a program, it runs the terminal debugger over the given scripts, until `quit`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from bootstrap.settings import ROOT
from rayside.client.events import JobState
from rayside.client.session import AttachOptions
from rayside.dap.client import Client
from rayside.relay.config import digest_of
from rayside.relay.debuggee import Debuggee
from rayside.relay.server import Relay
from rayside.worker.attach import UNCHECKED
from tests.integration.relay_debuggees import Finding
from tests.patience import PATIENCE

TOKEN = "a token"

# Program that most tests debug.
TASK = """\
def my_task(x):
    numbers = list(range(x))
    breakpoint()
    total = sum(numbers)
    return total

print("result", my_task(4))
"""

_RAY = """
import os
class Context:
    def get_task_name(self):
        return os.environ["TASK"]
def get_runtime_context():
    return Context()
"""

_DEBUGGER = """
import builtins, json, sys
import debugpy
port = None
def set_trace():
    global port
    if port is None:
        port = debugpy.listen(("127.0.0.1", 0))[1]
    builtins.breakpoint = sys.breakpointhook = sys.__breakpointhook__ = set_trace
    print(json.dumps({"port": port}), flush=True)
    debugpy.wait_for_client()
    import pydevd
    pydevd.settrace(stop_at_frame=sys._getframe().f_back)
builtins.breakpoint = sys.breakpointhook = set_trace
"""


class RealDebuggee:
    """Process that runs `script`; `lines` is the script's own output."""

    def __init__(self, script: Path, number: int) -> None:
        site = script.parent / "site-packages"
        if not site.exists():  # once: the debuggee before may be reading it
            (site / "ray" / "util").mkdir(parents=True)
            (site / "ray" / "__init__.py").write_text(_RAY)
            (site / "ray" / "util" / "__init__.py").touch()
            (site / "ray" / "util" / "debugpy.py").write_text(_DEBUGGER)
            (site / "sitecustomize.py").touch()
        start = f"import ray.util.debugpy, runpy; runpy.run_path({str(script)!r}, run_name='__main__')"
        self.lines: list[str] = []
        self.port = 0
        self.number = number
        self.script = script
        self.process = subprocess.Popen(
            [sys.executable, "-c", start],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C in the debugger's terminal must not reach it.
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(site), str(ROOT)]),
                "TASK": f"task-{number}",
                **UNCHECKED,
            },
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                self.port = json.loads(line)["port"]
            else:
                self.lines.append(line.strip())
        self.process.wait()

    @property
    def ended(self) -> bool:
        return self.process.returncode is not None and not self._reader.is_alive()

    def close(self) -> None:
        self.process.kill()
        self._reader.join(PATIENCE)
        if self.process.stdout is not None:
            self.process.stdout.close()


class RealJob(Finding):
    """Job of several debuggees; implements `Discovery` and `JobWatch`."""

    def __init__(self, scripts: Sequence[Path]) -> None:
        self.processes = [RealDebuggee(script, n) for n, script in enumerate(scripts, 1)]

    def all_ended(self) -> None:
        for debuggee in self.processes:
            debuggee._reader.join(PATIENCE)
            assert debuggee.ended

    def close(self) -> None:
        for debuggee in self.processes:
            debuggee.close()

    async def debuggees(self) -> list[Debuggee]:
        return [
            Debuggee(
                worker_id=f"w{d.number}",
                host="127.0.0.1",
                port=d.port,
                pid=d.process.pid,
                node_ip="127.0.0.1",
                job_id="01000000",
                submission_id="raysubmit_1",
                since=str(d.number),
            )
            for d in self.processes
            if d.port and not d.ended
        ]

    async def submission(self, job_id: str) -> str:
        return "raysubmit_1"

    def job(self) -> JobState:
        codes = [d.process.returncode for d in self.processes if d.ended]
        if len(codes) < len(self.processes):
            return JobState("raysubmit_1", "RUNNING", ended=False)
        return JobState("raysubmit_1", "FAILED" if any(codes) else "SUCCEEDED", ended=True)


def main(scripts: Sequence[str]) -> None:
    from rayside.client import terminal
    from rayside.console import Console
    from rayside.errors import RaysideError
    from rayside.event_loop import background_loop

    console = Console()
    job = RealJob([Path(script) for script in scripts])
    with background_loop() as call:
        relay = Relay(job, digest=digest_of(TOKEN), log=lambda line: None, shared_files=True)
        port = call(relay.serve("127.0.0.1", 0)).sockets[0].getsockname()[1]
        options = AttachOptions(partial(Client.connect, "127.0.0.1", port), token=TOKEN)
        try:
            code = 130
            while code == 130:
                with tempfile.TemporaryDirectory() as folder:
                    history = Path(folder) / "history"
                    try:
                        code = terminal.run(options, job, console, timeout=PATIENCE, history=history)
                    except SystemExit as signalled:
                        code = int(signalled.code or 0)
                console.result(f"LEFT {code}")
            job.all_ended()
            console.result(f"PRINTED {[debuggee.lines for debuggee in job.processes]}")
        except RaysideError as error:
            console.error(error)
        finally:
            call(relay.close())
            job.close()


if __name__ == "__main__":
    main(sys.argv[1:])
