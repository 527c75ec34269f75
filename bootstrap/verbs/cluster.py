"""Does `up`, `status`, `down`, `prepare` and `logs`, which concern the cluster itself."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from bootstrap import plan, step
from bootstrap.codespaces import addresses
from bootstrap.console import Console
from bootstrap.errors import INTERRUPTED, InvalidArgument, JobNotFound
from bootstrap.lock import alone
from bootstrap.settings import Settings
from bootstrap.shell import Shell
from bootstrap.sources.purge import remove_images
from bootstrap.step import Condition, Step, Timing
from bootstrap.steps import example_job
from bootstrap.verbs import workspace


def up(settings: Settings, console: Console, *, example: bool, use_context: bool = False) -> None:
    """Brings everything up, and the example to its breakpoint; changes nothing that is as it should be.

    `use_context` makes the cluster kubectl's current one. Raises InvalidArgument where there is none.
    """
    shell = Shell()
    plan.wait_for_engine(settings, shell, console.event)
    target = plan.choose(settings, shell)
    if use_context and not isinstance(target, plan.Kind):
        raise InvalidArgument("--use-context needs a Kubernetes cluster", hint="add --target kind")
    console.event(f"Target {target.target} ({target.reason}), programs from {target.source}")
    with _alone(target, console):
        began = time.monotonic()
        named = target.with_example if example else target.cluster
        steps, timings = _make(shell, console, target.first(), named)
    wall = time.monotonic() - began
    if any(timing.changed for timing in timings):
        target.remember(timings)
        _show_timings(console, steps, timings, wall)
    else:
        console.result(f"Nothing to change: all {len(steps)} steps were ready ({wall:.1f} s).")
    urls = addresses(target.urls())
    if isinstance(target, plan.Kind) and use_context:
        target.user_context.use()
    if urls["workspace"]:
        console.result()
        console.result(f"Workspace   {workspace.link(target)}")
        console.result(f"            password {target.workspace_password()}")
    console.result()
    console.result(f"Dashboard   {urls['dashboard']}")
    console.result(f"            it asks for the token in {target.folder / 'token'}")
    console.result()
    console.result(f"Relay       {urls['relay']}")
    console.result(f"            editors attach here, with the token in {target.folder / 'token'}")
    console.result()
    console.result(_next(target, example))


def status(settings: Settings, console: Console) -> None:
    """Shows what is true now, step by step."""
    target = plan.choose(settings, Shell())
    steps = target.cluster()
    statuses = step.check(steps)
    ready = all(status.condition is Condition.READY for status in statuses.values())
    urls = addresses(target.urls())
    if console.as_json:
        console.document(
            {
                "target": target.target,
                "source": target.source,
                "ready": ready,
                "steps": [
                    {"name": name, "condition": status.condition.value, "detail": status.detail}
                    for name, status in statuses.items()
                ],
                "urls": urls,
                "timing": target.timings(),
            }
        )
        return
    console.table(
        ("step", "condition", "detail"),
        [(name, status.condition.value, status.detail) for name, status in statuses.items()],
    )
    console.result()
    if not ready:
        console.result("Not ready. Next: ./invokew up")
        return
    ready_urls = ", ".join(f"{name} {url}" for name, url in urls.items() if url)
    console.result(f"Ready. {ready_urls.capitalize()}")
    jobs = target.require().jobs()
    if jobs:
        console.result()
        console.table(
            ("job", "status", "program"), [(job.submission_id, job.status, job.entrypoint) for job in jobs]
        )
    console.result("\nNext: ./invokew debug stops in what is paused; ./invokew submit starts a job")


def down(settings: Settings, console: Console, *, purge: bool) -> None:
    """Removes all that `up` made; what was downloaded stays in the cache, unless `purge`."""
    # There may be a workspace that the settings now do without.
    for target in plan.all_present(replace(settings, workspace=True), Shell()):
        with _alone(target, console), console.progress():
            step.down(target.cluster(), console)
    if purge:
        remove_images()
        shutil.rmtree(settings.cache_folder, ignore_errors=True)
        console.result(f"Everything is removed, the cache {settings.cache_folder} too.")
    else:
        console.result("Everything is removed but the cache (./invokew down --purge). Next: ./invokew up")


def prepare(settings: Settings, console: Console) -> None:
    """Fetches all that can be cached; starts nothing. Without a Docker engine, what needs none."""
    shell = Shell()
    plan.wait_for_engine(settings, shell, console.event)
    target, steps, left_out = plan.preparation(settings, shell)
    if left_out:
        console.event("No Docker engine answers: what needs none is prepared")
    _, timings = _make(shell, console, target.first(since=time.time()), steps)
    done = "Prepared" if any(timing.changed for timing in timings) else "Nothing to prepare: it is all cached"
    if left_out:
        titles = ", ".join(each.title for each in left_out if each.name != "engine")
        console.result(f"Left out, as no Docker engine answers: {titles}.")
        done = done.replace("it is all cached", "the rest is cached")
    if target.present() and (outdated := _outdated(target)):
        console.result(f"{done}.\nThe cluster that is up is of before, and stays so: {outdated}.")
        console.result("Next: ./invokew down, then ./invokew up, makes it anew")
        return
    console.result(f"{done}. Next: ./invokew up")


def _outdated(target: plan.Target) -> str:
    """Returns how a cluster that is up differs from what would be made now; empty where it does not."""
    statuses = step.check(target.cluster()).values()
    return "; ".join(status.detail for status in statuses if status.condition is Condition.DRIFTED)


def logs(settings: Settings, console: Console, *, job: str | None, follow: bool, ray: bool) -> int:
    """Prints a job's output (default: the newest job's), or the log of Ray's head; returns the exit code.

    Ctrl-C is the way to leave a log that is followed, so it ends that without a word.
    """
    target = plan.choose(settings, Shell())
    if ray:
        console.output(target.log.rstrip("\n") + "\n")
        return 0
    dashboard = target.require()
    jobs = dashboard.jobs()
    if not job and not jobs:
        raise JobNotFound("no job was submitted yet", hint="./invokew submit starts the example")
    chosen = dashboard.job(job) if job else jobs[-1]
    pieces = dashboard.follow(chosen.submission_id) if follow else [dashboard.output(chosen.submission_id)]
    try:
        for piece in pieces:
            console.output(piece)
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _make(
    shell: Shell, console: Console, first: Sequence[Step], named: Callable[[], Sequence[Step]]
) -> tuple[list[Step], list[Timing]]:
    """Makes `first` ready, then the steps that `named` gives; returns all, in order, and their timings."""
    with console.progress():
        began = time.monotonic()
        timings = step.up(first, console, interrupt=shell.interrupt)
        offset = time.monotonic() - began
        names = {each.name for each in first}
        rest = [each for each in named() if each.name not in names]
        later = step.up(rest, console, interrupt=shell.interrupt)
    return [*first, *rest], [
        *timings,
        *(replace(timing, started=timing.started + offset) for timing in later),
    ]


def _alone(target: plan.Target, console: Console) -> AbstractContextManager[None]:
    """Holds the target's lock: two commands at once would end each other's Ray."""
    return alone(target.lock, lambda: console.event("Another up or down is at work: waiting for its end"))


def _show_timings(console: Console, steps: Sequence[Step], timings: Sequence[Timing], wall: float) -> None:
    critical = step.critical_path(steps, timings)
    by_name = {timing.name: timing for timing in timings}
    rows = []
    for each in steps:
        timing = by_name[each.name]
        outcome = "made" if timing.changed else "was ready"
        rows.append(
            (
                each.name,
                f"{timing.started:.1f}",
                f"{timing.seconds:.1f}",
                "*" if each.name in critical else "",
                outcome,
            )
        )
    console.table(("step", "start s", "took s", "critical", ""), rows)
    path = sum(by_name[name].seconds for name in critical)
    console.result(f"{wall:.1f} s in all; the critical path (*) is {path:.1f} s.")


def _next(target: plan.Target, example: bool) -> str:
    if not example:
        return "Next: ./invokew submit --help says how to run your own program"
    if name := example_job.paused_in(target.require()):
        return f"The example is paused in its task {name}. Next: ./invokew debug"
    return "Next: ./invokew submit runs the example again; ./invokew submit --help, your own program"
