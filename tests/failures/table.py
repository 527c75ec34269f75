"""Makes the table of docs/internals/diagnose.md from the failures that the tests produce.

`python -m tests.failures.table` writes it into the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bootstrap.settings import ROOT
from tests.failures import jobs, pods
from tests.failures.failure import Failure

PAGE = ROOT / "docs" / "internals" / "diagnose.md"
# Each table follows the heading of one of these.
HEADINGS = {"## On one machine": jobs.FAILURES, "## On Kubernetes": pods.FAILURES}


def table(failures: Sequence[Failure]) -> str:
    """Returns the table of these failures."""
    head = "| how it is produced | id |\n| --- | --- |\n"
    return head + "".join(f"{failure.row()}\n" for failure in failures)


def with_tables(page: str) -> str:
    """Returns the page with each of its tables made anew."""
    for heading, failures in HEADINGS.items():
        before, after = page.split(f"{heading}\n", 1)
        text, _, rest = after.partition("| how it is produced ")
        _, separator, later = rest.partition("|\n\n")
        page = f"{before}{heading}\n{text}{table(failures)}" + (f"\n{later}" if separator else "")
    return page


def main(page: Path = PAGE) -> None:
    page.write_text(with_tables(page.read_text()))


if __name__ == "__main__":
    main()
