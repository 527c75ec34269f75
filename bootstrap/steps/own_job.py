"""Runs short jobs of ours in a Ray, and leaves nothing of them in its list of jobs."""

from __future__ import annotations

import contextlib
import io
import shutil
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bootstrap.settings import ROOT
from bootstrap.sources.debugger_files import DEBUGGER
from bootstrap.step import until
from rayside.errors import RaysideError
from rayside.ray import jobs
from rayside.ray.state import Dashboard

# The job may take so many seconds: Ray unpacks its files, and two processes come up.
_PATIENCE = 180.0
# Ray looks after each job once a second. One that was removed before the last look it writes anew, as failed
# (`_monitor_job_internal` in ray/dashboard/modules/job/job_manager.py, 2.60).
_WRITTEN_ANEW = 5.0
# So many lines of what a job has printed are read.
_LINES = 200


@dataclass(frozen=True)
class OwnJob:
    """A job whose submission id begins with `name`; `patience` is for Ray to stop one, in seconds."""

    dashboard: Dashboard
    name: str
    patience: float = 30.0

    def run(self, submit: Callable[[str], None]) -> str:
        """Runs it to its end; returns the end of what it printed. `submit` gets its submission id."""
        # One that was broken off would go on beside this one.
        for earlier in self.dashboard.jobs():
            if earlier.submission_id.startswith(f"{self.name}-"):
                self._forget(earlier.submission_id)
        submission_id = jobs.new_submission_id(f"{self.name}-job.py")
        submit(submission_id)
        try:
            until(lambda: self.dashboard.job(submission_id).ended, bool, _PATIENCE)
            return self.dashboard.output_end(self.dashboard.job(submission_id), _LINES)
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


def package(folder: Path) -> bytes:
    """Returns the folder as a zip file, of the same bytes for the same files."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            archive.writestr(zipfile.ZipInfo(file.relative_to(folder).as_posix()), file.read_bytes())
    return data.getvalue()


def write_code(folder: Path, texts: Mapping[str, str]) -> None:
    """Writes into a job's folder what of ours runs in Ray, and `texts`, files by their names."""
    for file in DEBUGGER:
        copy = folder / file
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / file, copy)
    for name, text in texts.items():
        (folder / name).write_text(text)
