"""Short jobs of our own on a Ray cluster, which stay in no list of jobs."""

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

# Timeout in seconds: Ray unpacks the job's files, and two processes come up.
_PATIENCE = 180.0
# Ray looks after each job once a second. One that was removed before the last look it writes anew, as failed
# (`_monitor_job_internal` in ray/dashboard/modules/job/job_manager.py, 2.60).
_WRITTEN_ANEW = 5.0
# Lines of a job's output that are read.
_LINES = 200


@dataclass(frozen=True)
class OwnJob:
    """A job whose submission id begins with `name`.

    `patience` is for Ray to stop one, `longest` for it to end by itself, both in seconds.
    """

    dashboard: Dashboard
    name: str
    patience: float = 30.0
    longest: float = _PATIENCE

    def run(self, submit: Callable[[str], None]) -> str:
        """Runs it to its end; returns the end of what it printed. `submit` gets its submission id.

        Raises NotReady where it has not ended within `longest`.
        """
        # One that was broken off would go on beside this one.
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
    """Writes into a job's folder what of ours runs in Ray, and `texts`, files by their names."""
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
    """Runs a program of ours in Ray, with its code and `texts`, files by their names; returns its output.

    Several people may do so at the same time: each job has a name of its own. Raises as `OwnJob.run`.
    """
    with tempfile.TemporaryDirectory(prefix="rayside-") as folder:
        write_code(Path(folder), texts or {})
        code = packages.working_dir(dashboard, folder)
    return OwnJob(dashboard, f"{name}-{secrets.token_hex(3)}", longest=longest).run(
        lambda submission_id: dashboard.submit(program, submission_id, {"working_dir": code}, user=user)
    )
