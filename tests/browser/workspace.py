"""Holds a browser workspace that `up` has brought up: its link and password, and the jobs beside it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import Browser, StorageState

from bootstrap.targets.target import Target
from rayside.ray.records import Job
from rayside.ray.state import Dashboard
from rayside.waiting import until
from tests.browser.workbench import Workbench, log_in, ready, tab
from tests.integration.conftest import Rayside, stop_jobs
from tests.patience import PATIENCE


@dataclass(frozen=True)
class Workspace:
    """A workspace; `link` is what `up` told the user to open, and `url` is the same without the folder."""

    rayside: Rayside
    target: Target
    dashboard: Dashboard
    token: str
    link: str
    password: str

    @property
    def url(self) -> str:
        return self.link.partition("/?")[0].rstrip("/")

    def address(self, folder: Path | str) -> str:
        """Returns the address of the workbench with that folder open."""
        return f"{self.url}/?folder={quote(str(folder))}"

    @contextlib.contextmanager
    def open(
        self, browser: Browser, address: str, evidence: Path, known: StorageState | None = None
    ) -> Iterator[Workbench]:
        """Opens a tab, which logs in unless it is `known` already; the other arguments are those of `tab`."""
        with tab(browser, address, evidence, known) as page:
            if known is None:
                log_in(page, self.password)
            yield ready(page)

    def submit(self, folder: Path, program: str, *more: str) -> str:
        """Submits a job that runs `program`, in `folder`, and returns its submission id."""
        options = ["--working-dir", str(folder), "--entrypoint", f"python {program}"]
        return str(self.rayside.json("submit", *options, *more)["submission_id"])

    def ended(self, submission_id: str) -> Job:
        """Waits for the job's end, and returns the job."""
        job = until(lambda: self.dashboard.job(submission_id), lambda job: job.ended, PATIENCE)
        assert job.ended, job
        return job

    def stop_all(self) -> None:
        """Ends every job: otherwise paused tasks of another job would stop in the same session."""
        stop_jobs(self.dashboard)

    def stop(self, submission_id: str) -> None:
        """Ends a job, whatever it is doing."""
        self.dashboard.stop(submission_id)


def workspace(rayside: Rayside, target: Target, printed: str) -> Workspace:
    """Returns the workspace whose link and password `up` printed, as its user reads them."""
    link = re.search(r"^Workspace +(https?://\S+)$", printed, re.MULTILINE)
    password = re.search(r"^ +password (\S+)$", printed, re.MULTILINE)
    assert link, printed
    assert password, printed
    token = target.instance.token_file.read_text()
    return Workspace(rayside, target, target.access.require(), token, link[1], password[1])
