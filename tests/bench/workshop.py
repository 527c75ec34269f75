"""Measures workshops of up to 1,000 places on nodes that are simulated: `./invokew bench --name workshop`.

It needs `./invokew prepare`. The nodes are kwok's, in a kind cluster of its own: their pods are ready at
once, and take nothing. So what is measured is the command, the API and KubeRay's operator, and no container.

- Time, requests to the API and memory of `workshop --places 100`, then of 500.
- The command for 1,000 is killed half-way, and run again.
- The same command once more, where all is there; and `workshop --remove`.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bootstrap.kube.api import CORE, Kube
from bootstrap.settings import ROOT, Settings, environment_name
from tests.bench.kind import run
from tests.go_programs import built
from tests.integration.conftest import free_ports
from tests.targets import kind_target

KWOK = "0.7.0"
# kwok manages the nodes that have it.
_SIMULATED = {"kwok.x-k8s.io/node": "fake"}
# A place of two pods, of about 0.6 CPU and 2 GiB: a thousand of them find room.
NODES, CAPACITY = 40, {"cpu": "32", "memory": "256Gi", "pods": "110", "ephemeral-storage": "1Ti"}
# Seconds after which the command for 1,000 places is killed.
HALF_WAY = 75.0
# What the child prints of itself at its end.
_MARK = "measured: "


@dataclass(frozen=True)
class Took:
    """What a command took: seconds, requests to the API, and MiB of memory at most."""

    seconds: float
    requests: int
    mebibytes: float

    def __str__(self) -> str:
        return f"{self.seconds:.1f} s, {self.requests} requests to the API, {self.mebibytes:.0f} MiB"


def measured(*words: str, env: dict[str, str]) -> Took:
    """Runs a verb as ./invokew does, in a process that counts; it must succeed."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.workshop", *words],
        cwd=ROOT,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"workshop {words} failed\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    (line,) = [line for line in done.stderr.splitlines() if line.startswith(_MARK)]
    return Took(time.monotonic() - began, **json.loads(line.removeprefix(_MARK)))


def count_and_run(words: list[str]) -> None:
    """Runs a verb in this process, and tells at its end what `Took` has besides the time."""
    from invoke.main import program

    requests = 0
    send = Kube._send

    def counted(self: Kube, *arguments: Any, **more: Any) -> Any:
        nonlocal requests
        requests += 1
        return send(self, *arguments, **more)

    Kube._send = counted  # type: ignore[method-assign]
    program.run(["invoke", "--search-root", str(ROOT), *words], exit=False)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stderr.write(f"\n{_MARK}{json.dumps({'requests': requests, 'mebibytes': memory})}\n")


@contextmanager
def simulated_nodes(kube: Kube) -> Iterator[None]:
    """Has kwok simulate the nodes, which alone take pods from now on."""
    for node in kube.items(f"{CORE}/nodes"):
        path = f"{CORE}/nodes/{node['metadata']['name']}"
        kube.patch(path, [{"op": "add", "path": "/spec/unschedulable", "value": True}])
    for number in range(NODES):
        metadata = {"name": f"simulated-{number:02}", "annotations": _SIMULATED}
        kube.apply({"apiVersion": "v1", "kind": "Node", "metadata": metadata})
        path = f"{CORE}/nodes/{metadata['name']}"
        given = [
            {"op": "add", "path": f"/status/{key}", "value": CAPACITY} for key in ("capacity", "allocatable")
        ]
        kube.patch(f"{path}/status", given)
    command = [
        *(str(built("kwok", "sigs.k8s.io/kwok/cmd/kwok", KWOK)), "--kubeconfig", str(kube.kubeconfig)),
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        "--node-lease-duration-seconds=200",
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.kill()


def killed_half_way(env: dict[str, str]) -> int:
    """Kills the command for 1,000 places; returns how many were begun."""
    command = ["./invokew", "workshop", "--places", "1000"]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, **env}, stdout=quiet, stderr=quiet
    ) as process:
        time.sleep(HALF_WAY)
        process.kill()
    return len(json.loads(run("./invokew", "workshop", "--status", "--json", env=env))["places"])


def main() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        ports = free_ports(6)
        settings = Settings(
            name="rayside-bench",
            target="kind",
            source="packages",
            ray_workers=1,
            state_folder=Path(folder, "s"),
        )
        names = ("dashboard", "ray_client", "relay", "workspace", "workshop", "teacher")
        env = {environment_name(f"{name}_port"): str(port) for name, port in zip(names, ports, strict=True)}
        env |= {
            environment_name(key): str(getattr(settings, key))
            for key in ("name", "target", "source", "ray_workers", "state_folder")
        }
        env["KUBECONFIG"] = f"{folder}/users-kubeconfig"
        try:
            run("./invokew", "up", env=env)
            with simulated_nodes(kind_target(settings).kube):
                for places in ("100", "500"):
                    print(f"{places} places: {measured('workshop', '--places', places, env=env)}", flush=True)
                begun = killed_half_way(env)
                print(f"the command for 1,000 was killed after {HALF_WAY:.0f} s, with {begun} begun")
                print(f"run again: {measured('workshop', '--places', '1000', env=env)}", flush=True)
                print(f"once more: {measured('workshop', '--places', '1000', env=env)}", flush=True)
                print(f"--remove: {measured('workshop', '--remove', env=env)}", flush=True)
        finally:
            run("./invokew", "down", env=env)


if __name__ == "__main__":
    count_and_run(sys.argv[1:]) if sys.argv[1:] else main()
