"""What a condition, and a logpoint, cost each time their line is reached: `python -m tests.bench.conditions`.

The same script in processes of their own, at one time: under debugpy alone, and under the relay. As
microseconds of its thread for each hit, and as a ratio to debugpy alone in the same run.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from bootstrap.debug.client import Client
from bootstrap.debug.dap import Message
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
CASES: dict[str, tuple[bool, Message]] = {
    "a condition, debugpy alone": (False, NEVER),
    "a condition, over the relay": (True, NEVER),
    "a logpoint, over the relay": (True, {"line": LINE, "logMessage": "x is {x}"}),
}


async def measure(over_relay: bool, spec: Message) -> float:
    """Microseconds a hit, of the best round."""
    with tempfile.TemporaryDirectory() as name:
        async with relay_over(Path(name)) as setting:
            (process,) = await setting.cluster.start(PROGRAM)
            client = await _attached(setting, over_relay, spec)
            await process.said()
            await client.disconnect()
            return float(process.lines[0])


async def _attached(setting: Setting, over_relay: bool, spec: Message) -> Client:
    if over_relay:
        return (await setting.attach({"job.py": [spec]})).client
    client = await Client.connect("127.0.0.1", setting.cluster.processes[0].debuggee.port)
    script = next(setting.cluster.here.parent.glob("session/**/job.py"))
    await client.attach(breakpoints={str(script): [spec]})
    return client


def main() -> None:
    async def one_after_the_other() -> dict[str, float]:
        return {title: await measure(*case) for title, case in CASES.items()}

    taken = asyncio.run(one_after_the_other())
    alone = next(iter(taken.values()))
    print(f"Python {sys.version.split()[0]}, {HITS:,} hits, the best of {ROUNDS} rounds")
    for title, microseconds in taken.items():
        print(f"{title:30}{microseconds:8.1f} µs a hit{microseconds / alone:8.2f} times")


if __name__ == "__main__":
    main()
