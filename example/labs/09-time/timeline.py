"""Shows Ray's timeline: when each task of this job ran."""

import json
import time
from pathlib import Path

import ray


def show(task: str, count: int) -> None:
    """Prints when so many tasks of that name ran, and writes the whole as a Chrome trace."""
    runs = []
    while len(runs) < count:
        # The timeline is about a second late.
        time.sleep(1)
        events = ray.timeline()
        runs = sorted(span(event) for event in events if is_run(event, task))
    Path("timeline.json").write_text(json.dumps(events))
    first = runs[0][0]
    for began, ended in runs:
        print(f"timeline: {task} ran from {began - first:.2f} to {ended - first:.2f} s")
    most = max(sum(began <= moment < ended for began, ended in runs) for moment, _ in runs)
    print(f"timeline: {len(runs)} ran, at most {most} at once")


def is_run(event: dict, task: str) -> bool:
    """Returns whether an event is the whole run of such a task of this job: there are those of all jobs."""
    job = ray.get_runtime_context().get_job_id()
    return event["cat"] == f"task::{task}" and event["args"]["task_id"].endswith(job)


def span(event: dict) -> tuple[float, float]:
    """Returns when an event began and ended, in seconds."""
    return event["ts"] / 1e6, (event["ts"] + event["dur"]) / 1e6
