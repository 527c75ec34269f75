"""Finds what the catalogue lacks of four shelves, each in a task of its own.

Its arguments are the tools that measure: `timed`, `cprofile` and `lines` in the tasks, `timeline` in the
driver. A number has each task do its work so many times.
"""

import os
import sys

# Of lines that are alike in several workers Ray would print one.
os.environ["RAY_DEDUP_LOGS"] = "0"

import library
import ray
from profiling import chosen
from timeline import show

WORDS = sys.argv[1:]
ROUNDS = int(next((word for word in WORDS if word.isdigit()), 1))


@ray.remote
@chosen(WORDS)
def check(shelf: str) -> int:
    entries = library.catalogue()
    for _ in range(ROUNDS):
        new = library.missing(library.titles_of(shelf), entries)
    return len(new)


counts = ray.get([check.remote(shelf) for shelf in library.SHELVES])
for shelf, count in zip(library.SHELVES, counts, strict=True):
    print(f"{shelf} lacks {count}")

if "timeline" in WORDS:
    show("check", len(library.SHELVES))
