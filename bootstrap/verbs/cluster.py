"""`up`, `status`, `down`, `prepare` and `logs`: the cluster itself."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager

from bootstrap import plan, step
from bootstrap.console import Console
from bootstrap.errors import InvalidArgument, JobNotFound
from bootstrap.lock import alone
from bootstrap.settings import Settings
from bootstrap.shell import Shell
from bootstrap.sources.purge import remove_images
from bootstrap.step import Condition, Step, Timing


def up(settings: Settings, console: Console, *, example: bool, use_context: bool = False) -> None:
    """Brings everything up, and the example to its breakpoint; changes nothing that is as it should be.

    `use_context` makes the cluster kubectl's current one. Raises InvalidArgument where there is none.
    """
    shell = Shell()
    target = plan.choose(settings, shell)
    if use_context and not isinstance(target, plan.Kind):
        raise InvalidArgument("--use-context needs a Kubernetes cluster", hint="add --target kind")
    steps = target.with_example() if example else target.cluster()
    console.event(f"Target {target.target} ({target.reason}), programs from {target.source}")
    with _alone(target, console):
        began = time.monotonic()
        with console.progress():
            timings = step.up(steps, console, interrupt=shell.interrupt)
    wall = time.monotonic() - began
    if any(timing.changed for timing in timings):
        target.remember(timings)
        _show_timings(console, steps, timings, wall)
    else:
        console.result(f"Nothing to change: all {len(steps)} steps were ready ({wall:.1f} s).")
    if isinstance(target, plan.Kind):
        if use_context:
            target.user_context.use()
        console.result()
        console.result(f"Workspace   {target.urls()['workspace']}")
        console.result(f"            password {target.password.password()}")
    console.result()
    console.result(f"Dashboard   {target.urls()['dashboard']}")
    console.result(f"            it asks for the token in {target.folder / 'token'}")
    console.result()
    console.result(f"Relay       {target.urls()['relay']}")
    console.result(f"            editors attach here, with the token in {target.folder / 'token'}")
    console.result()
    console.result(_next(target, example))


def status(settings: Settings, console: Console) -> None:
    """What is true now, step by step."""
    target = plan.choose(settings, Shell())
    steps = target.cluster()
    found = step.check(steps)
    ready = all(status.condition is Condition.READY for status in found.values())
    if console.as_json:
        console.document(
            {
                "target": target.target,
                "source": target.source,
                "ready": ready,
                "steps": [
                    {"name": name, "condition": status.condition.value, "detail": status.detail}
                    for name, status in found.items()
                ],
                "urls": target.urls(),
                "timing": target.timings(),
            }
        )
        return
    console.table(
        ("step", "condition", "detail"),
        [(name, status.condition.value, status.detail) for name, status in found.items()],
    )
    console.result()
    if not ready:
        console.result("Not ready. Next: ./invokew up")
        return
    console.result(f"Ready. Dashboard {target.urls()['dashboard']}, relay {target.urls()['relay']}")
    jobs = target.require().jobs()
    if jobs:
        console.result()
        console.table(
            ("job", "status", "program"), [(job.submission_id, job.status, job.entrypoint) for job in jobs]
        )
    console.result("\nNext: ./invokew debug stops in what is paused; ./invokew submit starts a job")


def down(settings: Settings, console: Console, *, purge: bool) -> None:
    """Removes all that `up` made; what was downloaded stays in the cache, unless `purge`."""
    for target in plan.all_present(settings, Shell()):
        with _alone(target, console), console.progress():
            step.down(target.cluster(), console)
    if purge:
        remove_images()
        shutil.rmtree(settings.cache_folder, ignore_errors=True)
        console.result(f"Everything is removed, the cache {settings.cache_folder} too.")
    else:
        console.result("Everything is removed but the cache (./invokew down --purge). Next: ./invokew up")


def prepare(settings: Settings, console: Console) -> None:
    """Fetches all that can be cached; starts nothing."""
    shell = Shell()
    steps = plan.choose(settings, shell).cacheable()
    with console.progress():
        timings = step.up(steps, console, interrupt=shell.interrupt)
    done = "Prepared" if any(timing.changed for timing in timings) else "Nothing to prepare: it is all cached"
    console.result(f"{done}. Next: ./invokew up")


def logs(settings: Settings, console: Console, *, job: str | None, follow: bool, ray: bool) -> None:
    """Prints a job's output (the newest job's, unless told), or the log of Ray's head."""
    target = plan.choose(settings, Shell())
    if ray:
        console.result(target.log.rstrip("\n"))
        return
    dashboard = target.require()
    jobs = dashboard.jobs()
    if not job and not jobs:
        raise JobNotFound("no job was submitted yet", hint="./invokew submit starts the example")
    chosen = dashboard.job(job) if job else jobs[-1]
    pieces = dashboard.follow(chosen.submission_id) if follow else [dashboard.output(chosen.submission_id)]
    for piece in pieces:
        console.output(piece)


def _alone(target: plan.Target, console: Console) -> AbstractContextManager[None]:
    """Two at once would end each other's Ray."""
    return alone(target.lock, lambda: console.event("Another up or down is at work: waiting for its end"))


def _show_timings(console: Console, steps: Sequence[Step], timings: Sequence[Timing], wall: float) -> None:
    critical = step.critical_path(steps, timings)
    by_name = {timing.name: timing for timing in timings}
    rows = []
    for one in steps:
        timing = by_name[one.name]
        what = "made" if timing.changed else "was ready"
        rows.append(
            (
                one.name,
                f"{timing.started:.1f}",
                f"{timing.seconds:.1f}",
                "*" if one.name in critical else "",
                what,
            )
        )
    console.table(("step", "start s", "took s", "critical", ""), rows)
    path = sum(by_name[name].seconds for name in critical)
    console.result(f"{wall:.1f} s in all; the critical path (*) is {path:.1f} s.")


def _next(target: plan.Target, example: bool) -> str:
    if not example:
        return "Next: ./invokew submit --help says how to run your own program"
    paused = [task.task for task in target.require().paused()]
    if paused:
        return f"The example is paused in its task {paused[0]}. Next: ./invokew debug"
    return "Next: ./invokew submit runs the example again; ./invokew submit --help, your own program"
