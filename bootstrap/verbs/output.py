"""Output of a job as it comes, to its end."""

from __future__ import annotations

import math
from collections.abc import Iterator

from bootstrap import step
from bootstrap.step import Report
from rayside.ray.state import LAG, Dashboard


def followed(dashboard: Dashboard, submission_id: str, report: Report) -> Iterator[str]:
    """Yields what the job prints, in pieces as it comes, until it has ended. Raises NotRunning, JobNotFound.

    Ray's head ends the stream at a line of over 4 MiB, the most that it takes at once from where the job
    runs (`max_msg_size` of aiohttp's client): the rest comes when the job has ended.
    """
    shown = 0
    for piece in dashboard.follow(submission_id):
        shown += len(piece)
        yield piece

    def ended() -> bool:
        return dashboard.job(submission_id).ended

    # The output ends a moment before the job is recorded as ended.
    if not step.until(ended, bool, patience=LAG):
        report(
            f"Ray has ended the stream of what job {submission_id} prints; the rest comes when it has ended"
        )
        step.until(ended, bool, patience=math.inf)
    if rest := dashboard.output(submission_id)[shown:]:
        yield rest
