"""Tests on kind that every lab fails before it is solved and passes after, or says why it can't be done."""

from __future__ import annotations

import pytest

from bootstrap.labs.lesson import lessons
from tests.e2e.conftest import target
from tests.integration.conftest import Rayside


@pytest.mark.timeout(1800)
def test_every_lab_fails_before_it_is_solved_and_passes_after(up: Rayside) -> None:
    # What stands still in other jobs holds processors that the labs' tasks need.
    dashboard = target(up).access.require()
    for job in dashboard.jobs():
        if not job.ended:
            dashboard.stop(job.submission_id)
    document = up.json("lab", "--all", "--check", timeout=1750)
    results = {result["name"]: result for result in document["labs"]}
    assert list(results) == [lesson.name for lesson in lessons()]
    for lesson in lessons():
        expected = "passed" if "kind" in lesson.targets else "skipped"
        assert results[lesson.name]["status"] == expected, results[lesson.name]
