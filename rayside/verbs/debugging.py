"""Verb `debug`: the terminal debugger and the scripted debugger for the cluster's tasks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rayside.client.commands import break_option, evaluate_option
from rayside.connection.access import Access
from rayside.console import Console
from rayside.dap.additions import ALWAYS, ASK
from rayside.errors import INTERRUPTED
from rayside.options import MOST_STOPS, stops_number, timeout_seconds
from rayside.ray.job_processes import is_open
from rayside.ray.metadata import DEBUG
from rayside.verbs.cluster_job import ClusterJob, attach_options


def debug(
    access: Access,
    console: Console,
    *,
    job: str | None,
    evaluate: Sequence[str],
    timeout: float | str,
    stops: str = str(MOST_STOPS),
    breaks: Sequence[str] = (),
    exceptions: bool = False,
    everyone: bool = False,
    children: bool = True,
) -> int:
    """Debugs the tasks in the terminal, or scripted with one document as result; returns the exit code.

    Args:
        timeout: in seconds, as typed.
        stops: the number of stops after which the scripted debugger ends, as typed.
        breaks: each is FILE:LINE[ HITS][:CONDITION], FILE from the current folder.
        everyone: whether tasks of all users of that Ray cluster are debugged, not only this user's.
        children: whether processes that tasks start are debugged as well.
    """
    patience, most = timeout_seconds(timeout), stops_number(stops)
    places = [break_option(text) for text in breaks]
    evaluate = [evaluate_option(text) for text in evaluate]
    dashboard = access.require()
    user = "" if everyone else access.identity.user
    watch = ClusterJob(dashboard, dashboard.job(job).submission_id if job else None, user)
    scripted = console.as_json or bool(evaluate)
    watched = watch.submitted()
    if scripted and watched is not None:
        # The scripted debugger watches one job, from the first stop to its end.
        watch = ClusterJob(dashboard, watched.submission_id)
    lacks_debug = watched is not None and not watched.ended and DEBUG not in watched.metadata
    if places and watched and lacks_debug and not (watched.job_id and is_open(dashboard, watched.job_id)):
        console.event(
            f"job {watched.submission_id} was not submitted with --debug: of its tasks only those that pause "
            "by themselves can be reached (./invokew submit --debug makes all reachable, ./invokew attach "
            f"{watched.submission_id} some that run)"
        )
    # Without a terminal there is nobody to ask.
    take_over = ASK if not scripted and console.typed_at else ALWAYS
    how = {"everyone": everyone, "exceptions": exceptions, "children": children}
    options = attach_options(access.identity, watch.submission_id, places, **how, take_over=take_over)
    if not scripted:
        from rayside.client import terminal

        history = access.identity.folder / "debug-history"
        return terminal.run(options, watch, console, timeout=patience, history=history)
    from rayside.client.scripted import Interruption, run_sync

    code = 0
    try:
        document = run_sync(
            options, watch, evaluate=evaluate, timeout=patience, most=most, on_event=console.event
        )
    except Interruption as interruption:
        console.event("interrupted; the tasks go on")
        document, code = interruption.document, INTERRUPTED
    console.document(document)
    return code


def launch_json(access: Access, console: Console) -> None:
    """Adds the relay to the current folder's launch.json for VS Code. Raises InvalidArgument."""
    from rayside.client import launch_json

    instance = access.identity
    token, file = instance.token_file, Path.cwd() / launch_json.PLACE
    changed = launch_json.write(file, port=instance.ports.relay, token_file=token)
    if console.as_json:
        console.document({"file": str(file), "configuration": launch_json.NAME, "changed": changed})
    console.result(f"{file} {'now has' if changed else 'has'} the configuration {launch_json.NAME!r}")
    console.result(f"Next: start it in VS Code (F5), and paste the token: cat {token}")
