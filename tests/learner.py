"""Provides a learner of the labs, whose copies are of their own."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator

from bootstrap.labs.copies import FOLDER
from bootstrap.settings import Settings
from rayside.system.lock import alone


@contextlib.contextmanager
def new_learner() -> Iterator[None]:
    """A learner who has not begun; whatever is in the place of the copies is put back afterwards."""
    aside = FOLDER.with_name("labs.aside")
    # The other lane may have a learner too, and the place of the copies is the same.
    with alone(Settings().cache_folder / "tests-with-labs.lock", lambda: None):
        if FOLDER.exists():
            FOLDER.rename(aside)
        try:
            yield
        finally:
            shutil.rmtree(FOLDER, ignore_errors=True)
            if aside.exists():
                aside.rename(FOLDER)
