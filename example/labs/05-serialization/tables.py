"""A table of corrections, large enough that it matters how often it is sent."""

from array import array


class Table:
    """Two million corrections, which weigh 16 MB."""

    # It counts how often this process has pickled a table.
    pickled = 0

    def __init__(self) -> None:
        self._factors = array("d", [1.5]) * 2_000_000

    def corrected(self, reading: int) -> float:
        return reading * self._factors[reading]

    def __getstate__(self) -> dict[str, object]:
        Table.pickled += 1
        return self.__dict__
