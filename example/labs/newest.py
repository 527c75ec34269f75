"""Prints the id of the newest job that runs a program, on the cluster that is up."""

from __future__ import annotations

import sys

from kubectl import settings

from bootstrap.targets import choice
from rayside.errors import JobNotFound, RaysideError
from rayside.system.shell import Shell


def newest(program: str) -> str:
    """Returns the id of the newest job of `program`.py that has not ended. Raises JobNotFound, NotRunning."""
    dashboard = choice.existing(settings(), Shell()).access.require()
    ids = [job.submission_id for job in dashboard.jobs() if not job.ended]
    # `submit` calls a job as its program, and six more characters.
    for submission_id in reversed(ids):
        if submission_id.rpartition("-")[0] == program:
            return submission_id
    raise JobNotFound(f"no job of {program}.py runs now", hint="submit it first: the step before does")


if __name__ == "__main__":
    try:
        print(newest(sys.argv[1]))
    except RaysideError as error:
        print(f"error[{error.id}]: {error.message}\n hint: {error.hint}", file=sys.stderr)
        sys.exit(error.exit_code)
