"""Verbs `up`, `status`, `list`, `down` and `prepare`, for the cluster itself."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

from bootstrap.codespaces import addresses
from bootstrap.errors import HasPlaces
from bootstrap.instance import all_recorded, configured
from bootstrap.settings import DEFAULT_NAME, Settings
from bootstrap.steps import example_job
from bootstrap.targets import choice, preparation
from bootstrap.targets.target import Target, with_example
from rayside.connection.instance import names
from rayside.console import Console
from rayside.errors import InvalidArgument, RaysideError
from rayside.plain import counted
from rayside.steps import graph
from rayside.steps.graph import Timing, critical_path
from rayside.steps.step import Condition, Step
from rayside.system.lock import alone
from rayside.system.shell import Shell
from rayside.verbs import cluster_status
from rayside.verbs.job_output import show_jobs


def up(settings: Settings, console: Console, *, example: bool, use_context: bool = False) -> None:
    """Starts everything, and runs the example to its breakpoint; steps that are ready are unchanged.

    `use_context` selects the cluster's context in kubectl. Raises InvalidArgument if it has none.
    """
    shell = Shell()
    choice.wait_for_engine(settings, console.event)
    if preparation.asks_mirror(settings):  # Its client is brought before the target is chosen.
        from bootstrap.verbs.mirror import registry_client

        registry_client(settings, shell, console)
    # The choice of target and ports is under the lock, too.
    with _alone(settings, console):
        target = choice.choose(settings, shell, asks=True)
        instance, access = target.instance, target.access
        if use_context and target.kubernetes is None:
            raise InvalidArgument("--use-context needs a Kubernetes cluster", hint="add --target kind")
        console.event(f"Target {instance.target} ({target.reason}), programs from {instance.source}")
        with console.progress():
            began = time.monotonic()
            steps = with_example(target) if example and target.brings_example else target.steps()
            timings = graph.up(steps, console, interrupt=shell.interrupt)
    wall = time.monotonic() - began
    if any(timing.changed for timing in timings):
        cluster_status.record(instance, timings)
        _show_timings(console, steps, timings, wall)
    else:
        console.result(f"Nothing to change: all {len(steps)} steps were ready ({wall:.1f} s).")
    urls = addresses(access.urls())
    if target.kubernetes and use_context:
        target.kubernetes.use_context()
    if urls["workspace"]:
        console.result()
        from bootstrap.verbs.open_workspace import link

        console.result(f"Workspace   {link(target, access.open_folder())}")
        console.result(f"            password {access.workspace_password()}")
    console.result()
    console.result(f"Dashboard   {urls['dashboard']}")
    if access.asks_for_token:
        console.result(f"            it asks for the token in {instance.token_file}")
    console.result()
    console.result(f"Relay       {urls['relay']}")
    console.result(f"            editors attach here, with the token in {instance.token_file}")
    console.result()
    console.result(_next(target, example))


def status(settings: Settings, console: Console, *, everyone: bool = False) -> None:
    target = choice.named(settings, Shell())
    statuses = graph.check(target.steps())
    urls = addresses(target.access.urls())
    where = {"target": target.instance.target, "source": target.instance.source}
    if not cluster_status.show(console, target.instance, statuses, urls, **where):
        return
    show_jobs(console, target.access.require().jobs(), target.instance.user, everyone=everyone)
    console.result("\nNext: ./invokew debug stops in what is paused; ./invokew submit starts a job")


def list_clusters(settings: Settings, console: Console) -> None:
    with ThreadPoolExecutor(max_workers=4) as pool:
        clusters = list(pool.map(partial(_listing, settings, Shell()), names(settings.state_folder)))
    if console.as_json:
        console.document(clusters)
    if not clusters:
        console.result("There is no cluster. Next: ./invokew up")
        return
    console.table(
        ("name", "target", "ready", "dashboard", "relay"),
        [
            (
                *(row["name"], row["target"] or "?", "yes" if row["ready"] else "no"),
                *(row["urls"].get(name) or "" for name in ("dashboard", "relay")),
            )
            for row in clusters
        ],
    )
    for row in clusters:
        if error := row.get("error"):
            console.result(f"{row['name']}: {error['message']}; {error['hint']}")
    console.result("\nNext: ./invokew status --name NAME shows the steps of one")


def _listing(settings: Settings, shell: Shell, name: str) -> dict[str, Any]:
    """Returns the cluster's row of `list --json`; if it can't be checked, with an error."""
    try:
        target = choice.of_name(settings, shell, name)
        ready = cluster_status.is_ready(graph.check(target.steps()))
    except RaysideError as error:
        return {"name": name, "target": None, "ready": False, "urls": {}, **error.document()}
    urls = addresses(target.access.urls())
    return {"name": name, "target": target.instance.target, "ready": ready, "urls": urls}


def down(settings: Settings, console: Console, *, purge: bool) -> None:
    """Removes everything that `up` made; downloads stay in the cache, unless `purge`."""
    places = [each.name for each in all_recorded(settings.state_folder) if each.workshop == settings.name]
    if places:
        raise HasPlaces(
            f"beside the cluster {settings.name} is a workshop of {counted(len(places), 'place')}, "
            f"as {places[0]}",
            hint=f"./invokew workshop --remove{configured(settings, '').verb_options} removes them first",
        )
    # A workspace may exist even if the settings now have none.
    with _alone(settings, console):
        targets = preparation.removable(replace(settings, workspace=True), Shell())
        if not purge and settings.name != DEFAULT_NAME and not any(map(choice.exists, targets)):
            console.result(
                f"There is no cluster {settings.name}. Next: ./invokew list shows those that there are"
            )
            return
        for target in targets:
            with console.progress():
                graph.down(target.steps(), console)
    others = names(settings.state_folder)
    if purge and others:
        console.result(f"Everything of {settings.name} is removed. The cache stays, for {', '.join(others)}.")
    elif purge:
        from bootstrap.sources.purge import remove_images

        remove_images()
        shutil.rmtree(settings.cache_folder, ignore_errors=True)
        console.result(f"Everything is removed, the cache {settings.cache_folder} too.")
    else:
        console.result("Everything is removed but the cache (./invokew down --purge). Next: ./invokew up")


def prepare(settings: Settings, console: Console) -> None:
    shell = Shell()
    choice.wait_for_engine(settings, console.event)
    if preparation.asks_mirror(settings):  # Its client is brought before the target is chosen.
        from bootstrap.verbs.mirror import registry_client

        registry_client(settings, shell, console)
    target, steps, left_out = preparation.preparation(settings, shell)
    if left_out:
        console.event("No Docker engine answers: what needs none is prepared")
    with console.progress():
        timings = graph.up(steps, console, interrupt=shell.interrupt)
    done = "Prepared" if any(timing.changed for timing in timings) else "Nothing to prepare: it is all cached"
    if left_out:
        titles = ", ".join(each.title for each in left_out if each.name != "engine")
        console.result(f"Left out, as no Docker engine answers: {titles}.")
        done = done.replace("it is all cached", "the rest is cached")
    statuses = graph.check(target.steps()).values() if target.present() else []
    if outdated := "; ".join(each.detail for each in statuses if each.condition is Condition.DRIFTED):
        console.result(f"{done}.\nThe cluster that is up differs from the settings; it stays so: {outdated}.")
        console.result("Next: ./invokew down, then ./invokew up, makes it anew")
        return
    console.result(f"{done}. Next: ./invokew up")


def _alone(settings: Settings, console: Console) -> AbstractContextManager[None]:
    """Acquires the cluster's lock: two commands at once would end each other's Ray processes."""
    lock = configured(settings, "").lock(settings.cache_folder)
    return alone(lock, lambda: console.event("Another up or down is at work: waiting for its end"))


def _show_timings(console: Console, steps: Sequence[Step], timings: Sequence[Timing], wall: float) -> None:
    critical = critical_path({each.name: each.needs for each in steps}, timings)
    by_name = {timing.name: timing for timing in timings}
    rows = []
    for each in steps:
        timing, mark = by_name[each.name], "*" if each.name in critical else ""
        outcome = "made" if timing.changed else "was ready"
        rows.append((each.name, f"{timing.started:.1f}", f"{timing.seconds:.1f}", mark, outcome))
    console.table(("step", "start s", "took s", "critical", ""), rows)
    path = sum(by_name[name].seconds for name in critical)
    console.result(f"{wall:.1f} s in all; the critical path (*) is {path:.1f} s.")


def _next(target: Target, example: bool) -> str:
    if not example or not target.brings_example:
        return "Next: ./invokew submit --help says how to run your own program"
    if name := example_job.paused_in(target.access.require()):
        return f"The example is paused in its task {name}. Next: ./invokew debug"
    return "Next: ./invokew submit runs the example again; ./invokew submit --help, your own program"
