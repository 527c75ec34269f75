"""Job submission from the browser workspace, next to the cluster: `image/workspace/submit`.

Options, JSON document, errors and exit codes are the same as in `./invokew submit`. RAYSIDE_CLUSTER_FILE
names the cluster file. The process runs on the Python of the cluster's Ray image, so it imports only the
standard library, dependencies of Ray, and pathspec, which the image contains.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rayside.console import Console
from rayside.errors import Interrupted, InvalidArgument, InvalidSetting, NotRunning, RaysideError
from rayside.options import SUBMISSION
from rayside.ray import jobs
from rayside.ray.debug import debugging
from rayside.ray.state import Dashboard

CLUSTER_FILE = "RAYSIDE_CLUSTER_FILE"


@dataclass(frozen=True)
class Cluster:
    """Cluster that runs the jobs: `dashboard` is its URL, as http://127.0.0.1:8265, `token` is Ray's.

    `name` is the RayCluster's or the target's name; `trusted` is an argument of `Dashboard`.
    """

    dashboard: str
    token: str = field(repr=False)
    name: str
    trusted: tuple[int, ...] = ()

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Cluster:
        """Reads the cluster file that the environment names. Raises InvalidSetting, NotRunning."""
        named = environment.get(CLUSTER_FILE)
        if not named:
            raise InvalidSetting(
                f"{CLUSTER_FILE} is not set", hint="set it to the cluster.json that ./invokew up wrote"
            )
        try:
            document = json.loads(Path(named).read_text())
            dashboard, token_file, target = (
                str(document[key]) for key in ("dashboard", "token_file", "target")
            )
            trusted = tuple(int(uid) for uid in document.get("trusted_uids", ()))
            token = Path(token_file).read_text().strip()
        except OSError as error:
            raise NotRunning(
                f"{error.filename} can't be read: {error.strerror}", hint="./invokew up writes it"
            ) from None
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidSetting(
                f"{named} is not a cluster file: {error!r}", hint="./invokew up writes it anew"
            ) from None
        # KubeRay sets this variable: a RayJob generates its cluster's name, so no file can contain it.
        return cls(dashboard, token, environment.get("RAY_CLUSTER_NAME") or target, trusted)


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the options, with their help texts."""
    parser = argparse.ArgumentParser(
        prog="submit",
        description="Submit a job: your program and packages.",
        allow_abbrev=False,
        exit_on_error=False,
    )
    for option in SUBMISSION:
        if not option.metavar:
            parser.add_argument(f"--{option.name}", action="store_true", help=option.help)
        elif option.may_be_repeated:
            parser.add_argument(
                f"--{option.name}", metavar=option.metavar, action="append", default=[], help=option.help
            )
        else:
            parser.add_argument(f"--{option.name}", metavar=option.metavar, help=option.help)
    return parser


def parsed(words: Sequence[str]) -> argparse.Namespace:
    """Returns the parsed options, not yet validated. Raises InvalidArgument."""
    hint = "--help lists the options"
    try:
        options, unknown = parser().parse_known_args(words)
    except argparse.ArgumentError as error:
        raise InvalidArgument(str(error), hint=hint) from None
    if unknown:
        raise InvalidArgument(f"unknown: {' '.join(unknown)}", hint=hint)
    return options


def prepare(options: argparse.Namespace) -> jobs.Submission:
    """Returns the validated job. Raises the errors of `jobs.prepare` and `debugging`."""
    return jobs.prepare(
        working_dir=options.working_dir,
        py_modules=options.py_modules,
        entrypoint=options.entrypoint,
        runtime_env=Path(options.runtime_env) if options.runtime_env else None,
        debug=debugging(
            options.debug,
            post_mortem=options.post_mortem,
            attach_timeout=options.attach_timeout,
            pip_debugpy=False,
            record_failures=options.record_failures,
            no_record_failures=options.no_record_failures,
        ),
    )


def submit(words: Sequence[str], console: Console) -> None:
    """Runs the whole command. Raises RaysideError."""
    job = prepare(parsed(words))
    cluster = Cluster.read(os.environ)
    dashboard = Dashboard(cluster.dashboard, cluster.token, trusted=cluster.trusted)
    dashboard.version()
    name = jobs.new_submission_id(job.entrypoint)
    jobs.submit(dashboard, job, name)
    submitted = dashboard.job(name)
    if console.as_json:
        console.document(
            {
                "submission_id": name,
                "job": submitted.job_id,
                "status": submitted.status,
                "cluster": cluster.name,
            }
        )
        return
    console.result(f"Job {name} is {submitted.status}")
    for note in job.notes():
        console.result(note)
    console.result("Next: the Ray view shows its tasks where they pause")


def main() -> int:
    """Runs the command, prints its error, and returns the exit code."""
    words = sys.argv[1:]
    console = Console("--json" in words)
    try:
        submit(words, console)
    except RaysideError as caught:
        error = caught
    except KeyboardInterrupt:
        error = Interrupted("interrupted", hint="run the command again to go on")
    else:
        return 0
    console.error(error)
    return error.exit_code
