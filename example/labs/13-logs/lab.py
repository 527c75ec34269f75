"""Checks lab 13: the job's logs are collected as JSON without a token, and the debugger masks it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from bootstrap.labs.exercise import Exercise, Run

# A collector reads files: those of kind are in pods (see the README).
TARGETS = ("local",)
NEEDS = ("rsyslogd",)

_ORDERS = set(range(1, 11))
_TOKEN = "tok_"


def solve(exercise: Exercise) -> None:
    run = exercise.succeeded(exercise.run("python where.py"))
    folder = re.search(r"^logs: (.+)$", run.output, re.MULTILINE)
    assert folder, run.output
    exercise.write_answers(logs=folder[1])
    stop = _stop(exercise)[1]
    (refusal,) = _refusals(_collected(exercise))
    exercise.write_answers(refused=refusal["order"], logger=refusal["name"], **stop)


def verify(exercise: Exercise) -> None:
    logs = Path(str(exercise.answer("logs")))
    refused, logger, token = (exercise.answer(name) for name in ("refused", "logger", "token"))
    run, stop = _stop(exercise)
    exercise.require(
        (logs / f"job-driver-{run.submission_id}.log").is_file(),
        f"{logs} does not have the logs of this cluster's jobs",
        "where.py prints the folder behind `logs:`",
    )
    records = _collected(exercise)
    exercise.require(
        _TOKEN not in run.output,
        "the job's output has the token",
        "the driver is a process of its own, and logs before any worker is there",
    )
    missing = sorted(_ORDERS - {record.get("order") for record in records})
    exercise.require(
        not missing,
        f"collected/workers.log has no record of the orders {missing}",
        "a worker logs to a file that ends in .err, and by default only from WARNING on",
    )
    (refusal,) = _refusals(records)
    exercise.require(
        "name" in refusal,
        "the records do not say which logger they are from",
        'ray.LoggingConfig takes additional_log_standard_attrs=["name"]',
    )
    exercise.require(
        (refused, logger) == (refusal["order"], refusal["name"]),
        f"the record of the refusal is not of order {refused} by the logger {logger}",
        "collected/workers.log has one record of the level ERROR",
    )
    exercise.require(
        str(token) == stop["token"],
        f"the debugger does not show {token} for token",
        "stop in Till.sell where amount is 280, and copy what `p` shows, without its quotes",
    )


def _stop(exercise: Exercise) -> tuple[Run, dict[str, str]]:
    """Runs the job; returns it, and what a debugger shows where an order is refused."""
    job = exercise.submit("python main.py", debug=True)
    line = exercise.line("shop.py", "self.log.error(")
    document = exercise.debug(job, breaks=[("shop.py", line)], evaluate=["self.token"])
    run = exercise.succeeded(exercise.wait(job))
    exercise.require(
        len(document["stopped"]) == 1,
        f"{len(document['stopped'])} orders were refused",
        f"one is, in the program as it came; {exercise.brought_back}",
    )
    shown = document["stopped"][0]["evaluated"]
    return run, {name.rpartition(".")[2]: value.strip("'") for name, value in shown.items()}


def _collected(exercise: Exercise) -> list[dict[str, Any]]:
    """Collects the logs of the newest job; returns the records of its workers. Raises NotSolved."""
    collect = exercise.folder / "collect.py"
    done = subprocess.run([sys.executable, str(collect)], capture_output=True, text=True, timeout=60)
    exercise.require(done.returncode == 0, f"collect.py: {done.stderr.strip()}", exercise.brought_back)
    collected = exercise.folder / "collected"
    exercise.require(
        (collected / "system.log").is_file(),
        f"rsyslogd has collected nothing of Ray's own logs: {done.stderr.strip()[:500]}",
        exercise.brought_back,
    )
    exercise.require(
        (collected / "workers.log").is_file(),
        "rsyslogd has collected nothing of the job's workers",
        "where.py says how the file is called that a worker logs to; rsyslog.conf asks for another",
    )
    text = (collected / "workers.log").read_text()
    exercise.require(
        _TOKEN not in text,
        "collected/workers.log has the token",
        "a filter of a logger is for what is logged to that logger itself: logging.setLogRecordFactory",
    )
    lines = [line for line in text.splitlines() if line.startswith("{")]
    exercise.require(
        lines,
        "the records in collected/workers.log are not JSON",
        "give ray.init a logging_config: ray.LoggingConfig, with the encoding JSON",
    )
    return [json.loads(line) for line in lines]


def _refusals(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [record for record in records if record["levelname"] == "ERROR"]
