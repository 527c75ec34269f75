"""Measures target `kind` with images cached and no cluster: `./invokew bench --name kind`.

It needs `./invokew prepare`.

- What is done ahead of `up`, and not by hand: the cluster's images are baked into the node's.
- `up`, to the example paused in a worker's pod and the workspace answering, over the same done by hand: the
  commands that the articles on this give, one after the other. Also with a baking added to each `up`.
- A second `up`, and `status`, where all is ready, beside importing their libraries.
- Its wall time over its critical path, and the memory of the whole stack.
"""

from __future__ import annotations

import os
import re
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import docker
import psutil
import requests

from bootstrap.delivery.baked import NodeImage, baked
from bootstrap.settings import ROOT, Settings
from bootstrap.sources.source import Source
from bootstrap.steps.kind_cluster import containers
from bootstrap.targets.kind import Kind
from rayside import waiting
from rayside.console import Console
from rayside.ray.state import Dashboard
from rayside.settings import environment_name
from rayside.steps import graph
from rayside.system.shell import Shell
from tests.targets import kind_target

RUNS = 3
WARM_RUNS = 7
PATIENCE = 300.0


def run(*command: object, env: dict[str, str] | None = None, stdin: str | None = None) -> str:
    """Returns a command's output; the command must succeed."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=ROOT,
        env={**os.environ, **(env or {})},
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"{command} failed\n{done.stdout}\n{done.stderr}")
    return done.stdout


@dataclass(frozen=True)
class ByHand:
    """Runs kind, kind load, KubeRay, kubectl ray job submit and kubectl port-forward, one after the other."""

    source: Source
    node: str
    ray_programs: Path
    folder: Path
    name: str = "rayside-by-hand"

    def seconds(self) -> float:
        began = time.monotonic()
        images, kubeconfig = self.source.images, self.folder / "kubeconfig"
        programs = {name: self.source.resolve(name).path for name in ("kind", "kubectl", "kubectl-ray")}
        kubectl: list[str | Path] = [programs["kubectl"], "--kubeconfig", kubeconfig]
        kind: list[str | Path] = [
            programs["kind"],
            "create",
            "cluster",
            "--name",
            self.name,
            "--wait",
            "120s",
        ]
        run(*kind, "--image", self.node, "--kubeconfig", kubeconfig)
        for image in (images.operator, images.ray, images.workspace):
            run(programs["kind"], "load", "docker-image", image, "--name", self.name)
        manifest = run(*kubectl, "kustomize", self.source.resolve("kuberay").path)
        manifest = manifest.replace("quay.io/kuberay/operator:v1.6.2", images.operator)
        run(*kubectl, "apply", "--server-side", "-f", "-", stdin=manifest)
        run(*kubectl, "wait", "--for=condition=Available", "--timeout=120s", "deployment/kuberay-operator")
        run(*kubectl, "create", "secret", "generic", "rayside-workspace", "--from-literal=password=by-hand")
        job = (ROOT / "example" / "ray-job.interactive-mode.yaml").read_text()
        job = job.replace("rayside/ray:current", images.ray)
        job = job.replace("rayside/workspace:current", images.workspace)
        # Without the token, which a user of the articles does not have either.
        job = re.sub(r"\n *authOptions:\n *mode: token", "", job)
        file = self.folder / "job.yaml"
        file.write_text(job)
        environment = {"PATH": f"{self.ray_programs}:{os.environ['PATH']}", "RAY_AUTH_MODE": "disabled"}
        run(
            *[programs["kubectl-ray"], "job", "submit", "--kubeconfig", kubeconfig, "-f", file, "--no-wait"],
            *["--working-dir", ROOT / "example" / "working_dir"],
            *["--runtime-env-json", f'{{"py_modules": ["{ROOT / "example" / "dependency"}"]}}'],
            *["--", "python", "sample_code.py"],
            env=environment,
        )
        head = run(*kubectl, "get", "pods", "-l", "ray.io/node-type=head", "-o", "name").strip()
        with subprocess.Popen(
            [str(word) for word in (*kubectl, "port-forward", head, "8443:8443", "8265:8265")],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as forward:
            try:
                wait_for("http://127.0.0.1:8443", Dashboard("http://127.0.0.1:8265", ""))
                return time.monotonic() - began
            finally:
                forward.terminate()

    def remove(self) -> None:
        run(self.source.resolve("kind").path, "delete", "cluster", "--name", self.name)


def wait_for(workspace: str, dashboard: Dashboard) -> None:
    """Waits until the workspace answers and a task is paused."""

    def answers_and_paused() -> bool:
        try:
            answer = requests.get(f"{workspace}/healthz", timeout=2)
            return answer.ok and bool(dashboard.waiting())
        except Exception:
            return False

    if not waiting.until(answers_and_paused, bool, PATIENCE):
        raise SystemExit("the example was not paused in time")


def baking_seconds(node: NodeImage) -> float:
    """Returns the seconds to bake that image again; the existing one stays, and the new one is removed."""
    # Under one more name, which makes it another image; nothing looks for it.
    other = replace(
        node, aliases=(*node.aliases, (node.images[0], f"docker.io/rayside/bench:{secrets.token_hex(4)}"))
    )
    began = time.monotonic()
    other.apply(Console().event)
    seconds = time.monotonic() - began
    client = docker.from_env(timeout=600)
    try:
        client.images.remove(other.reference)
    finally:
        client.close()
    return seconds


def bakings(target: Kind, plain: NodeImage) -> float:
    """Prints and returns the median seconds of a baking, in turn with one of Kubernetes' own images alone.

    With those kind's own node images come too.
    """
    (whole,) = (step for step in target.cacheable(engine=True) if isinstance(step, NodeImage))
    times = [(baking_seconds(whole), baking_seconds(plain)) for _ in range(RUNS)]
    whole_image, alone = (float(statistics.median(column)) for column in zip(*times, strict=True))
    print(
        f"baking, ahead of `up` and once for each change of an image: {whole_image:.1f} s "
        f"(from {min(times)[0]:.1f} to {max(times)[0]:.1f}); with Kubernetes' own images alone {alone:.1f} s "
        f"(medians, {RUNS} runs)",
        flush=True,
    )
    return whole_image


def memory(cluster: str, forwards: list[psutil.Process]) -> float:
    """Returns the GiB of the node, without the page cache that the kernel gives back, and of the forwards."""
    client = docker.from_env()
    try:
        usage = containers(client, cluster)[0].stats(stream=False)["memory_stats"]
    finally:
        client.close()
    cache = usage["stats"].get("total_inactive_file", usage["stats"].get("inactive_file", 0))
    return float(usage["usage"] - cache + sum(each.memory_info().rss for each in forwards)) / 2**30


def warm(env: dict[str, str]) -> str:
    """Returns what verbs take where all is ready, beside what importing their libraries takes."""
    commands: dict[str, list[object]] = {
        "`up`": ["./invokew", "up"],
        "`status`": ["./invokew", "status"],
        "importing": [sys.executable, "-c", "import invoke, docker, psutil, requests, yaml"],
    }
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(WARM_RUNS):
        for name, command in commands.items():
            began = time.monotonic()
            run(*command, env=env)
            seconds[name].append(time.monotonic() - began)
    each = ", ".join(f"{name} {statistics.median(runs):.2f} s" for name, runs in seconds.items())
    return f"all ready: {each} (medians of {WARM_RUNS} runs)"


def main() -> None:
    shell = Shell()
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        settings = Settings(
            target="kind", source="packages", name="rayside-bench", state_folder=Path(folder, "s")
        )
        env = {environment_name(key): str(value) for key, value in vars(settings).items()}
        env["KUBECONFIG"] = f"{folder}/users-kubeconfig"
        target = replace(kind_target(settings), asks=True, prepares=True)
        source = target.origin
        graph.up(target.cacheable(engine=True), Console())
        # As kind's own node images are: with Kubernetes' images, and no others.
        plain = baked(shell, settings.cache_folder, source)
        assert plain
        plain.apply(Console().event)
        baking = bakings(target, plain)
        by_hand = ByHand(source, plain.reference, target.environment.programs, Path(folder))
        ratios, walls, theirs, overheads = [], [], [], []
        for number in range(RUNS):
            try:
                began = time.monotonic()
                printed = run("./invokew", "up", env=env)
                walls.append(time.monotonic() - began)
                wall, path = map(float, re.findall(r"([\d.]+) s", printed.splitlines()[total_at(printed)]))
                overheads.append(wall / path)
                if number == 0:
                    used = memory(settings.name, target.forwards.leftovers())
                    print(f"memory of the whole stack: {used:.2f} GiB")
                    print(warm(env), flush=True)
            finally:
                run("./invokew", "down", env=env)
            try:
                theirs.append(by_hand.seconds())
            finally:
                by_hand.remove()
            ratios.append(walls[-1] / theirs[-1])
            print(f"up {walls[-1]:.1f} s, by hand {theirs[-1]:.1f} s", flush=True)
        print(
            f"up over by hand: ratio {statistics.median(ratios):.2f} (from {min(ratios):.2f} to "
            f"{max(ratios):.2f}; medians {statistics.median(walls):.1f} s and "
            f"{statistics.median(theirs):.1f} s, {RUNS} runs)"
        )
        together = statistics.median(
            (wall + baking) / other for wall, other in zip(walls, theirs, strict=True)
        )
        print(f"the same with a baking of {baking:.1f} s before each `up`, as after a change: {together:.2f}")
        print(f"wall over critical path: {statistics.median(overheads):.2f} ({RUNS} runs)")


def total_at(printed: str) -> int:
    """Returns the number of the line that `up` ends its table with."""
    return next(at for at, line in enumerate(printed.splitlines()) if "s in all" in line)


if __name__ == "__main__":
    main()
