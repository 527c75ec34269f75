"""Measures what conditions, logpoints and prints cost with each hit: `python -m tests.bench.conditions`.

The same script in processes of their own, at one time: under debugpy alone, and under the relay. As
microseconds of its thread for each hit, and as a ratio to debugpy alone in the same run.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rayside.dap.client import Client
from rayside.dap.framing import Message
from tests.integration.relay_debuggees import Setting, relay_over

HITS, ROUNDS = 1_000, 8
PROGRAM = f"""\
import time
def work(x):
    y = x * 2
    return y
def loop():
    began = time.thread_time()
    for i in range({HITS}):
        work(i)
    return time.thread_time() - began
print(min(loop() for _ in range({ROUNDS})) / {HITS} * 1e6, flush=True)
"""
LINE = 4
NEVER: Message = {"line": LINE, "condition": "x < 0"}


@dataclass(frozen=True)
class Case:
    """Says what is set, and by whom.

    Attributes:
        prints: whether the script prints with each hit.
        redirected: whether an editor gets the prints too.
    """

    title: str
    spec: Message | None = None
    over_relay: bool = True
    prints: bool = False
    redirected: bool = False


CASES = [
    Case("a condition, debugpy alone", NEVER, over_relay=False),
    Case("a condition, over the relay", NEVER),
    Case("a logpoint, over the relay", {"line": LINE, "logMessage": "x is {x}"}),
    Case("a print", prints=True),
    Case("a print that is told", prints=True, redirected=True),
]


async def measure(case: Case) -> float:
    """Returns the microseconds of a hit, in the best round."""
    program = PROGRAM.replace("y = x * 2", "y = print(x)") if case.prints else PROGRAM
    with tempfile.TemporaryDirectory() as name:
        async with relay_over(Path(name)) as setting:
            (process,) = await setting.cluster.start(program)
            client = await _attached(setting, case)
            await process.until_printed(HITS * ROUNDS + 1 if case.prints else 1)
            await client.disconnect()
            return float(process.lines[-1])


async def _attached(setting: Setting, case: Case) -> Client:
    specs = [case.spec] if case.spec is not None else []
    if case.over_relay:
        return (await setting.attach({"job.py": specs}, redirectOutput=case.redirected)).client
    client = await Client.connect("127.0.0.1", setting.cluster.processes[0].debuggee.port)
    script = next(setting.cluster.here.parent.glob("session/**/job.py"))
    await client.attach(breakpoints={str(script): specs})
    return client


def main() -> None:
    async def one_after_the_other() -> dict[str, float]:
        return {case.title: await measure(case) for case in CASES}

    by_title = asyncio.run(one_after_the_other())
    alone = next(iter(by_title.values()))
    print(f"Python {sys.version.split()[0]}, {HITS:,} hits, the best of {ROUNDS} rounds")
    for title, microseconds in by_title.items():
        print(f"{title:30}{microseconds:8.1f} µs a hit{microseconds / alone:8.2f} times")


if __name__ == "__main__":
    main()
