"""Measures what debugpy costs a hot loop of small calls, as ratios: `python -m tests.bench.tracing`.

With arguments, those Pythons are measured (each needs debugpy and bytecode); without, this one. Each row with
a breakpoint stands twice: as debugpy does it, and compiled in.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bootstrap.settings import ROOT
from rayside.dap.client import QUIETLY, Client
from rayside.dap.framing import Message
from rayside.relay.connection import call
from rayside.worker import evaluated
from rayside.worker import tracing as hooks
from rayside.worker.evaluated import compiled as compiling
from rayside.worker.evaluated import reached

ROUNDS = 15
# Calls of a round; where debugpy traces each line of the function, a round would take minutes.
CALLS, TRACED_CALLS = 1_000_000, 20_000
ENVIRONMENT = {"PYDEVD_USE_SYS_MONITORING": "0", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}

# Measures the loop each time a line comes, so that what is compared runs side by side.
PROGRAM = """\
import sys, time

def small(x):
    if x < 0:
        return 0  # never
    return x + 1  # hot

def loop(calls):
    began = time.thread_time()
    for i in range(calls):
        small(i)
    return (time.thread_time() - began) / calls

# Its own loop before there is a debugger: from process to process it differs by a tenth.
print(min(loop(1_000_000) for _ in range(int(sys.argv[3]))), flush=True)
if sys.argv[1] != "plain":
    import debugpy
    debugpy.configure(subProcess=False)
    print(debugpy.listen(("127.0.0.1", 0))[1], flush=True)
    if not sys.argv[1].startswith("debugpy"):
        sys.path.insert(0, sys.argv[2])
        from rayside.worker import tracing
        tracing.sleep()
        tracing.wake_by_itself()
for line in sys.stdin:
    print(loop(int(line)), flush=True)
"""

CASES = {
    "plain": "plain",
    "debugpy": "debugpy listens, as it comes",
    "hook": "port open, nobody attached",
    "attached": "attached, nothing to stop at",
    "relay": "attached, and put to sleep by the relay",
}
# The marker of the breakpoint's line, its condition and its message, for debugpy and compiled in.
BREAKPOINTS = {
    "elsewhere": ("a breakpoint in another file", "", "", ""),
    "never": ("in the function, its line not reached", "never", "", ""),
    "false": ("a condition on the hot line, never true", "hot", "x == -1", ""),
    "message": ("a message, once in a thousand calls", "hot", "x % 1000 == 0", "x is {x}"),
}
for name, (title, *_) in BREAKPOINTS.items():
    CASES |= {f"debugpy {name}": f"{title}: debugpy", f"compiled {name}": f"{title}: compiled in"}


class Process:
    """The process of one case, of one Python."""

    def __init__(self, python: str, case: str, folder: Path) -> None:
        self.case, self._folder = case, folder
        self.calls = TRACED_CALLS if case.startswith("debugpy ") else CALLS
        self.process = subprocess.Popen(
            [python, folder / "program.py", case, ROOT, str(ROUNDS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        self.plain = float(self._line())
        self.port = 0 if case == "plain" else int(self._line())

    async def attach(self) -> Client | None:
        if self.case in ("plain", "debugpy", "hook"):
            return None
        client = await Client.connect("127.0.0.1", self.port)

        async def configure() -> None:
            if self.case == "relay":
                await client.request("evaluate", {"expression": call(hooks.sleep), "context": QUIETLY})
            how, _, name = self.case.partition(" ")
            if name:
                await self._set_breakpoint(client, name, compiled=how == "compiled")

        await client.attach(configure=configure)
        return client

    async def _set_breakpoint(self, client: Client, name: str, *, compiled: bool) -> None:
        _, marker, condition, message = BREAKPOINTS[name]
        file = self._folder / ("program.py" if marker else "elsewhere.py")
        lines = file.read_text().splitlines()
        spec: Message = {"line": next(n for n, line in enumerate(lines, 1) if line.endswith(f"# {marker}"))}
        if compiled:
            for expression in (call(compiling.begin), call(evaluated.begin, "a")):
                await client.request("evaluate", {"expression": expression, "context": QUIETLY})
            if condition:
                points = call(reached.set_points, {1: (condition, message, False, "", 5.0)})
                await client.request("evaluate", {"expression": points, "context": QUIETLY})
                spec["condition"] = "__rayside__(1)"
        else:
            spec |= {"condition": condition} if condition else {}
            spec |= {"logMessage": message} if message else {}
        await client.set_breakpoints(str(file), [spec])

    async def seconds(self) -> float:
        """Returns the seconds of one call."""
        assert self.process.stdin
        self.process.stdin.write(f"{self.calls}\n")
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
        (folder / "elsewhere.py").write_text("x = 1  # \n")
        for python in pythons or [sys.executable]:
            version = subprocess.check_output([python, "-c", "import sys; print(sys.version.split()[0])"])
            columns[version.decode().strip()] = asyncio.run(measure(python, folder))
    print(f"small calls, ratio to the same before debugpy (best of {ROUNDS})")
    print(f"{'Python':52}" + "".join(f"{version:>10}" for version in columns))
    for case, title in CASES.items():
        print(f"{title:52}" + "".join(f"{ratios[case]:10.2f}" for ratios in columns.values()))


if __name__ == "__main__":
    main(sys.argv[1:])
