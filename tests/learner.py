"""New learner of the labs, with separate copies of the files."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator

from bootstrap.labs.copies import FOLDER
from bootstrap.settings import Settings
from rayside.system.lock import alone


@contextlib.contextmanager
def new_learner() -> Iterator[None]:
    """Provides a learner without progress; moves existing copies aside, and back afterwards."""
    aside = FOLDER.with_name("labs.aside")
    # A learner in another lane uses the same folder for the copies.
    with alone(Settings().cache_folder / "tests-with-labs.lock", lambda: None):
        if FOLDER.exists():
            FOLDER.rename(aside)
        try:
            yield
        finally:
            shutil.rmtree(FOLDER, ignore_errors=True)
            if aside.exists():
                aside.rename(FOLDER)
