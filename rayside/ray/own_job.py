"""Rayside's own short jobs on a Ray cluster, which are removed from the list of jobs at their end."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rayside.debugger_files import DEBUGGER, ROOT
from rayside.errors import NotReady, RaysideError
from rayside.ray import jobs, packages
from rayside.ray.state import Dashboard
from rayside.waiting import until

# Timeout in seconds: Ray unpacks the job's files, and starts two processes.
_PATIENCE = 180.0
# Timeout in seconds: Ray polls each job once a second, and a job that was removed before the last poll is
# listed again, as failed (`_monitor_job_internal` in ray/dashboard/modules/job/job_manager.py, 2.60).
_WRITTEN_ANEW = 5.0
# Limit: lines of a job's output that are read.
_LINES = 200


@dataclass(frozen=True)
class OwnJob:
    """Job whose submission id begins with `name`.

    Timeouts in seconds: `patience` for Ray to stop it, `longest` for it to end by itself.
    """

    dashboard: Dashboard
    name: str
    patience: float = 30.0
    longest: float = _PATIENCE

    def run(self, submit: Callable[[str], None]) -> str:
        """Runs the job to its end; returns the end of its output. `submit` gets its submission id.

        Raises NotReady if it does not end within `longest`.
        """
        # An earlier job whose command was interrupted would still run.
        for earlier in self.dashboard.jobs():
            if earlier.submission_id.startswith(f"{self.name}-"):
                self._forget(earlier.submission_id)
        submission_id = jobs.new_submission_id(f"{self.name}-job.py")
        submit(submission_id)
        try:
            job = until(lambda: self.dashboard.job(submission_id), lambda job: job.ended, self.longest)
            if not job.ended:
                raise NotReady(
                    f"a job of Rayside's is {job.status} in Ray still, after {self.longest:g} s",
                    hint="./invokew status shows what is wrong with the cluster",
                )
            return self.dashboard.output_end(job, _LINES)
        finally:
            with contextlib.suppress(RaysideError):
                self._forget(submission_id)

    def _forget(self, submission_id: str) -> None:
        self.dashboard.stop(submission_id)
        until(lambda: self.dashboard.job(submission_id).ended, bool, self.patience)
        self.dashboard.forget(submission_id)
        if until(lambda: self._is_listed(submission_id), bool, _WRITTEN_ANEW):
            self.dashboard.forget(submission_id)

    def _is_listed(self, submission_id: str) -> bool:
        return any(job.submission_id == submission_id for job in self.dashboard.jobs())


def write_code(folder: Path, texts: Mapping[str, str]) -> None:
    """Writes the debugger's code into a job's folder, and `texts`, contents by file name."""
    for file in DEBUGGER:
        copy = folder / file
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / file, copy)
    for name, text in texts.items():
        (folder / name).write_text(text)


def run_module(
    dashboard: Dashboard,
    name: str,
    program: str,
    *,
    user: str,
    texts: Mapping[str, str] | None = None,
    longest: float = _PATIENCE,
) -> str:
    """Runs a job with `program`, the debugger's code and `texts`, contents by file name; returns its output.

    Several users may do this at the same time, as each job has a unique name. Raises as `OwnJob.run`.
    """
    with tempfile.TemporaryDirectory(prefix="rayside-") as folder:
        write_code(Path(folder), texts or {})
        code = packages.working_dir(dashboard, folder)
    return OwnJob(dashboard, f"{name}-{secrets.token_hex(3)}", longest=longest).run(
        lambda submission_id: dashboard.submit(program, submission_id, {"working_dir": code}, user=user)
    )
