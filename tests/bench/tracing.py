"""What debugpy costs a hot loop of a million small calls, as ratios: `python -m tests.bench.tracing`.

With arguments, those Pythons are measured (each needs debugpy); without, this one.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bootstrap.debug.client import Client
from bootstrap.debug.tracing import SLEEP, WAKE
from bootstrap.settings import ROOT

ROUNDS = 15
HOOK = ROOT / "bootstrap" / "ray" / "hook"
ENVIRONMENT = {"PYDEVD_USE_SYS_MONITORING": "0", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}

# Measures the loop each time a line comes, so that what is compared runs side by side.
PROGRAM = """\
import sys, time

def small(x):
    return x + 1

def loop():
    began = time.perf_counter()
    for i in range(1_000_000):
        small(i)
    return time.perf_counter() - began

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
    "relay": "attached, after WAKE and SLEEP",
    "elsewhere": "a breakpoint in another file",
}


class Process:
    """One case of one Python."""

    def __init__(self, python: str, case: str, folder: Path) -> None:
        self.case, self.elsewhere = case, folder / "elsewhere.py"
        self.process = subprocess.Popen(
            [python, folder / "program.py", case, HOOK],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        self.port = 0 if case == "plain" else int(self._line())

    async def attach(self) -> Client | None:
        if self.case in ("plain", "listening", "hook"):
            return None
        client = await Client.connect("127.0.0.1", self.port)
        there = self.case == "elsewhere"
        await client.attach(breakpoints={str(self.elsewhere): [{"line": 1}]} if there else {})
        if self.case == "relay":
            for expression in (WAKE, SLEEP):
                await client.request("evaluate", {"expression": expression, "context": "clipboard"})
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
    """Seconds of the loop by case: the best of ROUNDS, the cases taking turns."""
    processes = [Process(python, case, folder) for case in CASES]
    clients = [client for process in processes if (client := await process.attach())]
    taken: dict[str, list[float]] = {case: [] for case in CASES}
    for _ in range(ROUNDS):
        for process in processes:
            taken[process.case].append(await process.seconds())
    for client in clients:
        await client.disconnect()
    for process in processes:
        process.end()
    return {case: min(seconds) for case, seconds in taken.items()}


def main(pythons: Sequence[str] = ()) -> None:
    columns = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "program.py").write_text(PROGRAM)
        (folder / "elsewhere.py").write_text("x = 1\n")
        for python in pythons or [sys.executable]:
            version = subprocess.check_output([python, "-c", "import sys; print(sys.version.split()[0])"])
            columns[version.decode().strip()] = asyncio.run(measure(python, folder))
    print(f"a million small calls, ratio to plain (best of {ROUNDS})")
    print(f"{'Python':34}" + "".join(f"{version:>10}" for version in columns))
    for case, title in CASES.items():
        ratios = [seconds[case] / seconds["plain"] for seconds in columns.values()]
        print(f"{title:34}" + "".join(f"{ratio:10.2f}" for ratio in ratios))
    plain = [seconds["plain"] for seconds in columns.values()]
    print(f"{'(plain, seconds: median)':34}{statistics.median(plain):10.3f}")


if __name__ == "__main__":
    main(sys.argv[1:])
