"""Measures what debugpy costs a hot loop of small calls, as ratios: `python -m tests.bench.tracing`.

With arguments, those Pythons are measured (each needs debugpy); without, this one.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bootstrap.dap.client import QUIETLY, Client
from bootstrap.relay.tracing import SLEEP
from bootstrap.settings import ROOT

ROUNDS = 20
HOOK = ROOT / "bootstrap" / "hook"
ENVIRONMENT = {"PYDEVD_USE_SYS_MONITORING": "0", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}

# Measures the loop each time a line comes, so that what is compared runs side by side.
PROGRAM = """\
import sys, time

def small(x):
    return x + 1

def loop():
    began = time.thread_time()
    for i in range(1_000_000):
        small(i)
    return time.thread_time() - began

# Its own loop before there is a debugger: from process to process it differs by a tenth.
print(min(loop() for _ in range(int(sys.argv[3]))), flush=True)
if sys.argv[1] != "plain":
    import debugpy
    debugpy.configure(subProcess=False)
    print(debugpy.listen(("127.0.0.1", 0))[1], flush=True)
    if sys.argv[1] != "listening":
        sys.path.insert(0, sys.argv[2])
        from rayside_hook import tracing
        tracing.sleep()
        tracing.wake_by_itself()
for _ in sys.stdin:
    print(loop(), flush=True)
"""

CASES = {
    "plain": "plain",
    "listening": "debugpy listens, as it comes",
    "hook": "with the hook, nobody attached",
    "attached": "attached, nothing to stop at",
    "relay": "attached, and put to sleep by the relay",
    "elsewhere": "a breakpoint in another file",
}


class Process:
    """Is the process of one case, of one Python."""

    def __init__(self, python: str, case: str, folder: Path) -> None:
        self.case, self.elsewhere = case, folder / "elsewhere.py"
        self.process = subprocess.Popen(
            [python, folder / "program.py", case, HOOK, str(ROUNDS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        self.plain = float(self._line())
        self.port = 0 if case == "plain" else int(self._line())

    async def attach(self) -> Client | None:
        if self.case in ("plain", "listening", "hook"):
            return None
        client = await Client.connect("127.0.0.1", self.port)
        breakpoint_elsewhere = self.case == "elsewhere"

        async def sleep() -> None:
            if self.case == "relay":
                await client.request("evaluate", {"expression": SLEEP, "context": QUIETLY})

        breakpoints = {str(self.elsewhere): [{"line": 1}]} if breakpoint_elsewhere else {}
        await client.attach(breakpoints=breakpoints, configure=sleep)
        return client

    async def seconds(self) -> float:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(await asyncio.to_thread(self._line))

    def end(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()

    def _line(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline()


async def measure(python: str, folder: Path) -> dict[str, float]:
    """Returns each case's ratio of the loop to the same process's plain one, of the best rounds in turn."""
    processes = [Process(python, case, folder) for case in CASES]
    clients = [client for process in processes if (client := await process.attach())]
    seconds: dict[str, list[float]] = {case: [] for case in CASES}
    for _ in range(ROUNDS):
        for process in processes:
            seconds[process.case].append(await process.seconds())
    for client in clients:
        await client.disconnect()
    for process in processes:
        process.end()
    return {process.case: min(seconds[process.case]) / process.plain for process in processes}


def main(pythons: Sequence[str] = ()) -> None:
    columns = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "program.py").write_text(PROGRAM)
        (folder / "elsewhere.py").write_text("x = 1\n")
        for python in pythons or [sys.executable]:
            version = subprocess.check_output([python, "-c", "import sys; print(sys.version.split()[0])"])
            columns[version.decode().strip()] = asyncio.run(measure(python, folder))
    print(f"a million small calls, ratio to the same before debugpy (best of {ROUNDS})")
    print(f"{'Python':42}" + "".join(f"{version:>10}" for version in columns))
    for case, title in CASES.items():
        print(f"{title:42}" + "".join(f"{ratios[case]:10.2f}" for ratios in columns.values()))


if __name__ == "__main__":
    main(sys.argv[1:])
