"""A browser workspace that `up` has brought up: its link and password, and the jobs beside it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import requests
from playwright.sync_api import Browser, StorageState

from bootstrap.ray.state import Dashboard, Job
from bootstrap.step import until
from bootstrap.targets.target import Target
from tests.browser.workbench import PATIENCE, Workbench, log_in, ready, tab
from tests.integration.conftest import Rayside


@dataclass(frozen=True)
class Workspace:
    """`link` is what `up` told the user to open, without its folder `url`."""

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
        """Of the workbench with that folder open."""
        return f"{self.url}/?folder={quote(str(folder))}"

    @contextlib.contextmanager
    def open(
        self, browser: Browser, address: str, evidence: Path, known: StorageState | None = None
    ) -> Iterator[Workbench]:
        """A tab of its own, which logs in unless it is known already; the rest as of `tab`."""
        with tab(browser, address, evidence, known) as page:
            if known is None:
                log_in(page, self.password)
            yield ready(page)

    def submit(self, folder: Path, program: str, *more: str) -> str:
        """The submission id of a job that runs `program`, in `folder`."""
        wanted = ["--working-dir", str(folder), "--entrypoint", f"python {program}"]
        return str(self.rayside.json("submit", *wanted, *more)["submission_id"])

    def ended(self, submission_id: str) -> Job:
        """The job, which must end."""
        job = until(lambda: self.dashboard.job(submission_id), lambda job: job.ended, PATIENCE)
        assert job.ended, job
        return job

    def stop_all(self) -> None:
        """Ends every job: what is paused of another would stop in the same session."""
        for job in self.dashboard.jobs():
            if not job.ended:
                self.stop(job.submission_id)
                self.ended(job.submission_id)

    def stop(self, submission_id: str) -> None:
        """Ends a job, whatever it does."""
        url = f"{self.dashboard.url}/api/jobs/{submission_id}/stop"
        answer = requests.post(url, headers={"Authorization": f"Bearer {self.token}"}, timeout=30)
        answer.raise_for_status()


def workspace(rayside: Rayside, target: Target, said: str) -> Workspace:
    """The one of which `up` said that, as its user reads it."""
    link = re.search(r"^Workspace +(https?://\S+)$", said, re.MULTILINE)
    password = re.search(r"^ +password (\S+)$", said, re.MULTILINE)
    assert link, said
    assert password, said
    token = target.instance.token_file.read_text()
    return Workspace(rayside, target, target.access.require(), token, link[1], password[1])
