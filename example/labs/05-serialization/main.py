"""Corrects the readings of a meter, each in a task of its own, and keeps them in a journal."""

import sqlite3
import sys
import threading

import ray
from ray import cloudpickle
from tables import Table

READINGS = [4, 14, 160, 2652]
TABLE = Table()
LOCK = threading.Lock()
JOURNAL = sqlite3.connect(":memory:")
JOURNAL.execute("create table readings (reading integer, corrected real)")


@ray.remote
def correct(reading: int) -> float:
    corrected = TABLE.corrected(reading)
    with LOCK:
        JOURNAL.execute("insert into readings values (?, ?)", (reading, corrected))
    return corrected


if "--look" in sys.argv:
    ray.util.inspect_serializability(correct._function, name="correct")
    sys.exit()

print(f"corrected {ray.get([correct.remote(reading) for reading in READINGS])}")
print(f"journal has {JOURNAL.execute('select count(*) from readings').fetchone()[0]} readings")

# Leave these lines as they are: they say what was sent.
print(f"table was pickled {Table.pickled} times")
print(f"function weighs {len(cloudpickle.dumps(correct._function))} bytes")
