"""Measures what a debugger port's proof costs, as ratios within one run: `./invokew bench --name attach`.

- From knowing a paused debuggee to its `stopped`: our listener over debugpy's server, with our client.
- From a Python with debugpy to its open port: the same two.

Needs nothing to be up.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from bootstrap.settings import ROOT
from rayside.worker.handshake import proof
from tests.bench.local import paired, to_stop

TOKEN = "a token"
OPENS = {
    "ours": f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
    f"from rayside.worker import attach; attach.rays_token = {TOKEN!r}.encode\n"
    "import debugpy, time; began = time.monotonic()\n"
    "port = attach.listen('127.0.0.1')\n",
    "debugpy's": "import debugpy, time; debugpy.configure(subProcess=False); began = time.monotonic()\n"
    "port = debugpy.listen(('127.0.0.1', 0))[1]\n",
}
STOPS = (
    "print(port, time.monotonic() - began, flush=True)\n"
    "import pydevd, sys\n"
    "def pause():\n"
    "    debugpy.wait_for_client()\n"
    "    pydevd.settrace(stop_at_frame=sys._getframe().f_back)\n"
    "pause()\n"
    "after = True\n"
)


def measured(whose: str) -> tuple[float, float]:
    """Returns the seconds to a fresh debuggee's open port, and from there to `stopped`."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "debuggee.py")
        program.write_text(OPENS[whose] + STOPS)
        command = [sys.executable, "-X", "frozen_modules=off", str(program)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as debuggee:
            assert debuggee.stdout
            port, listening = debuggee.stdout.readline().split()
            rules = [{"module": "__main__", "include": True}]
            prove = partial(proof, TOKEN.encode())
            return float(listening), to_stop(int(port), prove=prove, options={"rules": rules})


def _figure(whose: str, column: int) -> float:
    return measured(whose)[column]


def main() -> None:
    for name, column in (("to the open port", 0), ("attach to stopped", 1)):
        paired(
            f"{name}, our listener over debugpy's server",
            partial(_figure, "ours", column),
            partial(_figure, "debugpy's", column),
        )


if __name__ == "__main__":
    main()
