"""Measures target `cluster` on a plain `ray start` of this machine: `./invokew bench --name cluster`.

- To the first stop: `up --address`, `submit --debug` and an editor at the relay, over an attach by hand:
  `ray job submit` of a program that calls `breakpoint()`, its worker looked up in the State API, and a DAP
  client at that.
- What `--debug` adds to a job's start: from the submission to the first line of its first task, with and
  without it.

By hand the nodes' environment has debugpy, and workers' ports are in reach: by `kubectl port-forward` they
are not. Nothing need be up. `RUNS` of the environment says how many pairs are measured.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rayside.ray.state import Dashboard
from rayside.waiting import until
from tests.bench.local import paired, to_stop
from tests.integration.conftest import Rayside, apart
from tests.integration.their_ray import TheirRay, their_ray

RUNS = int(os.environ.get("RUNS", "5"))
PATIENCE = 120.0
PROGRAM = """\
import time
import ray
@ray.remote
def work(n):
    print(f"began {time.time()} ")
    return n + 1
ray.init()
ray.get(work.remote(1))
"""
LINE = 6
PAUSES = PROGRAM.replace("    return", "    breakpoint()\n    return")


@dataclass(frozen=True)
class Bench:
    """A Ray of others, a user without a cluster, and the folder of a program."""

    ray: TheirRay
    user: Rayside
    folder: Path
    # Seconds of each `up`.
    ups: list[float] = field(default_factory=list)

    @property
    def dashboard(self) -> Dashboard:
        return Dashboard(self.ray.url, "")

    def verb(self, *words: str) -> None:
        done = self.user.run(*words)
        assert done.returncode == 0, done.stdout + done.stderr

    def program(self, text: str) -> list[str]:
        (self.folder / "main.py").write_text(text)
        return ["--working-dir", str(self.folder), "--entrypoint", "python main.py"]

    # --- to the first stop ----------------------------------------------------------------

    def with_rayside(self) -> float:
        """Returns the seconds from `up` to the first stop; nothing of it is left."""
        job = self.program(PROGRAM)
        began = time.monotonic()
        self.verb("up", "--address", self.ray.url)
        self.ups.append(time.monotonic() - began)
        self.verb("submit", "--debug", *job)
        token = (self.user.folder / "token").read_text()
        breakpoints = {str(self.folder / "main.py"): [{"line": LINE}]}
        port = self.user.settings.relay_port
        seconds = to_stop(port, began=began, breakpoints=breakpoints, options={"token": token})
        self._ended()
        self.verb("down")
        return seconds

    def by_hand(self) -> float:
        """Returns the seconds from `ray job submit` to the first stop."""
        self.program(PAUSES)
        python = self.ray.home / "env" / "bin" / "python"
        submit = ["-m", "ray.scripts.scripts", "job", "submit", "--no-wait", "--address", self.ray.url]
        words = [str(python), *submit, "--working-dir", str(self.folder), "--", "python", "main.py"]
        began = time.monotonic()
        subprocess.run(words, check=True, capture_output=True)
        (worker,) = until(self.dashboard.debuggable, bool, PATIENCE)
        seconds = to_stop(worker.port, host=worker.node_ip, began=began)
        self._ended()
        return seconds

    # --- a job's start --------------------------------------------------------------------

    def start(self, *options: str) -> float:
        """Returns the seconds from `submit` to the first line of the first task."""
        job = self.program(PROGRAM)
        began = time.time()
        self.verb("submit", *options, *job)
        task = re.search(r"began ([\d.]+) ", self._ended())
        assert task
        return float(task[1]) - began

    def _ended(self) -> str:
        """Waits until the newest job has ended; returns what it printed."""
        dashboard = self.dashboard
        name = dashboard.jobs()[-1].submission_id
        assert until(lambda: dashboard.job(name).ended, bool, PATIENCE), name
        return dashboard.output(name)


@contextmanager
def bench() -> Iterator[Bench]:
    with their_ray(with_debugpy=True) as ray, tempfile.TemporaryDirectory(dir="/tmp") as folder:
        state, code = Path(folder, "s"), Path(folder, "code")
        code.mkdir()
        user = Rayside(apart(state, workspace=False))
        try:
            yield Bench(ray, user, code)
        finally:
            user.run("down")


def main() -> None:
    with bench() as measured:
        paired("to the first stop, over by hand", measured.with_rayside, measured.by_hand, RUNS)
        ups = measured.ups[1:]  # the first one warms up
        print(f"`up` alone: median {statistics.median(ups):.2f} s (from {min(ups):.2f} to {max(ups):.2f})")
        measured.verb("up", "--address", measured.ray.url)
        debug = partial(measured.start, "--debug", "--attach-timeout", "0")
        paired("a job's start with --debug, over without", debug, measured.start, RUNS)


if __name__ == "__main__":
    main()
