"""Checks lab 14: the queries find in a real Prometheus what was counted, and each order is one trace."""

from __future__ import annotations

import json
import re
import secrets
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from bootstrap.labs.exercise import PATIENCE, Exercise
from rayside import yaml_file
from rayside.errors import CommandFailed
from rayside.system.shell import Shell
from rayside.waiting import until

# On Kubernetes a Prometheus belongs into the cluster, where it reaches every pod.
TARGETS = ("local",)
NEEDS = ("prometheus",)

_LAB = Path(__file__).parent
_ORDERS = 20
_REFUSED = 4
# 18 of 20 wait up to 5 s, and the 16th of them is where 80 % end: 1 + (5 - 1) * 16 / 18.
_EIGHTY = 1 + 4 * 16 / 18
_QUERIES = {
    "refused": (_REFUSED, "select the label outcome, and sum over the tills"),
    "share": (_REFUSED / _ORDERS, "divide one sum by the other"),
    "eighty": (_EIGHTY, "histogram_quantile takes the quantile, 0.8, and the buckets summed by (le)"),
}


def setup(exercise: Exercise) -> None:
    _write_config(exercise, exercise.folder.parent / "prometheus.yml")


def solve(exercise: Exercise) -> None:
    exercise.write_answers(traces=40, lost="pack", dashboards=8, sum=144)


def verify(exercise: Exercise) -> None:
    answers = {name: exercise.answer(name) for name in ("traces", "lost", "dashboards", "sum")}
    queries = yaml_file.read(exercise.folder / "queries.yaml")
    for name in _QUERIES:
        exercise.require(
            isinstance(queries, Mapping) and queries.get(name),
            f"queries.yaml has nothing for {name}",
            "write a query in PromQL behind it",
        )
    with exercise.untouched(_LAB) as untouched:
        before, run = _started(untouched)
        traces, lost = _traces(untouched, before)
        sums = _asked(exercise, run, {"sum": 'sum(ray_waiting_seconds_sum{run="$run"})'})
        exercise.dashboard.stop(before)
        dashboards = _dashboards(untouched)
    seen: dict[str, tuple[object, str]] = {
        "traces": (traces, "main.py prints it behind traces:"),
        "lost": (lost, "main.py prints last which spans begin a trace; order is meant to"),
        "dashboards": (dashboards, "dashboards.py prints it last"),
        "sum": (round(_number(exercise, "sum", sums)), "sum(ray_waiting_seconds_sum) of your run says it"),
    }
    for name, (value, hint) in seen.items():
        exercise.require(answers[name] == value, f"{name} was not {answers[name]}", hint)
    _check_mended(exercise, queries)


def _check_mended(exercise: Exercise, queries: Mapping[str, Any]) -> None:
    job, run = _started(exercise)
    results = _asked(exercise, run, {name: queries[name] for name in _QUERIES})
    for name, (value, hint) in _QUERIES.items():
        number = _number(exercise, name, results)
        exercise.require(
            abs(number - value) < 0.01, f"{name} gives {number:g}, and {value:.4g} is right", hint
        )
    traces, lost = _traces(exercise, job)
    exercise.dashboard.stop(job)
    exercise.require(
        (traces, lost) == (_ORDERS, ""),
        f"{_ORDERS} orders are {traces} traces: {lost or 'order'} begins one of its own",
        "a task knows only what it is given: give it tracing.current(), where it is called",
    )


def _started(exercise: Exercise) -> tuple[str, str]:
    """Starts the program and returns its job and the name of its run, as soon as it has shown its traces."""
    run = f"run-{secrets.token_hex(4)}"
    job = exercise.submit(f"python main.py {run}")

    def shown() -> bool:
        return "begin a trace:" in exercise.dashboard.output(job) or exercise.job(job).ended

    until(shown, bool, PATIENCE)
    output = exercise.dashboard.output(job)
    exercise.require(
        f"sold {_ORDERS} things" in output,
        f"the program does not sell {_ORDERS} things; the last that it printed:\n{output[-600:]}",
        f"./invokew logs --job {job} shows all of it",
    )
    return job, run


def _traces(exercise: Exercise, job: str) -> tuple[int, str]:
    """Returns how many traces a job has shown, and which spans begin one besides `order`."""
    output = exercise.dashboard.output(job)
    count, begin = re.search(r"traces: (\d+) of", output), re.search(r"begin a trace: (.+)", output)
    if not (count and begin):
        exercise.not_solved("the program does not show its traces", exercise.brought_back)
    return int(count[1]), ", ".join(name for name in begin[1].strip().split(", ") if name != "order")


def _dashboards(exercise: Exercise) -> int:
    run = exercise.succeeded(exercise.run("python dashboards.py"))
    return len(re.findall(r"^\w+\.json: ", run.output, re.MULTILINE))


def _asked(exercise: Exercise, run: str, queries: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Returns the rows of each query, of a real Prometheus that scrapes the cluster for a while."""
    exercise.report(f"asking Prometheus for {', '.join(queries)} of {run}")
    with tempfile.TemporaryDirectory() as home:
        config, file = Path(home, "prometheus.yml"), Path(home, "queries.yaml")
        _write_config(exercise, config)
        file.write_text(yaml.safe_dump(dict(queries)))
        try:
            words: list[str | Path] = ["--config", config, "--queries", file, "--json"]
            done = Shell().run([sys.executable, _LAB / "ask.py", run, *words])
        except CommandFailed as error:
            why = error.message.strip().splitlines()[-1]
            exercise.not_solved(
                f"Prometheus did not answer: {why}", "try it with ask.py, which says the same"
            )
    return dict(json.loads(done.out))


def _number(exercise: Exercise, name: str, results: Mapping[str, list[dict[str, Any]]]) -> float:
    rows = results[name]
    exercise.require(
        len(rows) == 1 and not rows[0]["metric"],
        f"{name} gives {len(rows)} rows, and one without labels is asked for",
        "sum() adds up the rows of all tills",
    )
    return float(rows[0]["value"][1])


def _write_config(exercise: Exercise, file: Path) -> None:
    """Writes what has Prometheus scrape this cluster: Ray keeps the list of its nodes in a file."""
    nodes = exercise.target.instance.ray_folder / "ray/session_latest/prom_metrics_service_discovery.json"
    config = {
        # A scrape may take no longer than the time between two; on a busy machine one takes over a second.
        "global": {"scrape_interval": "3s"},
        "scrape_configs": [{"job_name": "ray", "file_sd_configs": [{"files": [str(nodes)]}]}],
    }
    file.write_text(yaml.safe_dump(config))
