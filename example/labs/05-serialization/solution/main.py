"""Corrects the readings of a meter, each in a task of its own, and keeps them in a journal."""

import sqlite3
import sys

import ray
from ray import cloudpickle
from ray.actor import ActorHandle
from tables import Table

READINGS = [4, 14, 160, 2652]


@ray.remote
class Journal:
    """Keeps the readings; its methods run one after the other, so it needs no lock."""

    def __init__(self) -> None:
        # The connection is made where it is used, and never leaves this process.
        self._connection = sqlite3.connect(":memory:")
        self._connection.execute("create table readings (reading integer, corrected real)")

    def write(self, reading: int, corrected: float) -> None:
        self._connection.execute("insert into readings values (?, ?)", (reading, corrected))

    def size(self) -> int:
        return int(self._connection.execute("select count(*) from readings").fetchone()[0])


@ray.remote
def correct(reading: int, table: Table, journal: ActorHandle) -> float:
    corrected = table.corrected(reading)
    ray.get(journal.write.remote(reading, corrected))
    return corrected


if "--look" in sys.argv:
    ray.util.inspect_serializability(correct._function, name="correct")
    sys.exit()

journal = Journal.remote()
# The tasks get a reference, and Ray gives each of them the table that it refers to.
table = ray.put(Table())
print(f"corrected {ray.get([correct.remote(reading, table, journal) for reading in READINGS])}")
print(f"journal has {ray.get(journal.size.remote())} readings")

# Leave these lines as they are: they say what was sent.
print(f"table was pickled {Table.pickled} times")
print(f"function weighs {len(cloudpickle.dumps(correct._function))} bytes")
