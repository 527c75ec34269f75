"""Groups the values that one expression has in many tasks: what is odd comes first."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from bootstrap.dap.framing import Message

# The most characters of all groups in JSON: an editor that leaves more than 16 MiB unread is dropped
# (editor.py).
MOST = 8_000_000
# From so many numbers on one can lie far from the others.
_CROWD = 3
# The limit of the modified z-score, and its factor: Iglewicz and Hoaglin, How to Detect and Handle Outliers,
# 1993.
_MOST_Z, _FACTOR = 3.5, 0.6745
ERROR, NAN, SHAPE, OUTLIER = "error", "nan", "shape", "outlier"
_ORDER = (ERROR, NAN, SHAPE, OUTLIER, "")


@dataclass
class _Group:
    value: Message
    tasks: list[Message] = field(default_factory=list)
    mark: str = ""

    @property
    def measures(self) -> tuple[float, ...]:
        """Returns the numbers by which it can lie far from others: those of an array are three."""
        number = self.value.get("number")
        if number is not None:
            return (number,)
        measures = (self.value.get("min"), self.value.get("max"), self.value.get("mean"))
        return () if None in measures else measures  # type: ignore[return-value]

    @property
    def form(self) -> str:
        """Returns all that is not the content: types, shapes, and lengths of containers."""
        names = ["kind", "type", "shape", "dtype", *(["size"] if self.value["kind"] == "container" else [])]
        columns = [(column.get("name"), column.get("dtype")) for column in self.value.get("columns", [])]
        return json.dumps([*map(self.value.get, names), columns])


def grouped(told: Sequence[tuple[Message, Message]], most: int = MOST) -> Message:
    """Groups tasks by their values, each a pair of a value and a row; of both the first ones of a group stay.

    Args:
        told: a value is as `bootstrap.hook.evaluated.summary` has it.
        most: about the most characters of JSON.

    Returns:
        `{"tasks": how many have told a value, "groups": [{"value", "count", "mark", "alike": bool,
        "tasks": the rows}], "left_out": the tasks of the groups that are too many,
        "numbers": {"count", "min", "median", "max"}, or None where no value is a finite number}`.

        Groups are in the order of their marks: `error`, the expression raises; `nan`, there is NaN or an
        infinity in it; `shape`, another type, shape, or length of a container than the most tasks have;
        `outlier`, a number far from the others (of an array min, max or mean). Those without a mark follow,
        the largest first. A number is far where its modified z-score, 0.6745 |x - median| / MAD, is above
        3.5; MAD is the median of all |x - median|. Where that is 0, more than half of them being the same,
        each other number is. Of fewer than three none is. `alike`: another group shows the same, and
        differs from it in what is not shown.
    """
    groups: dict[str, _Group] = {}
    for value, row in told:
        groups.setdefault(json.dumps(value, sort_keys=True), _Group(value)).tasks.append(row)
    every = list(groups.values())
    _mark(every)
    every.sort(key=lambda group: (_ORDER.index(group.mark), -len(group.tasks)))
    shown = Counter(map(_shown, every))
    rows: list[Message] = []
    left_out = 0
    for group in every:
        value = {name: part for name, part in group.value.items() if name != "digest"}
        row = {
            "value": value,
            "count": len(group.tasks),
            "mark": group.mark,
            "alike": shown[_shown(group)] > 1,
        }
        most -= len(json.dumps([row, group.tasks]))
        if most < 0 and rows:
            left_out += len(group.tasks)
        else:
            rows.append({**row, "tasks": group.tasks})
    return {"tasks": len(told), "groups": rows, "left_out": left_out, "numbers": _numbers(every)}


def _shown(group: _Group) -> str:
    return json.dumps({name: part for name, part in group.value.items() if name != "digest"})


def _mark(groups: Sequence[_Group]) -> None:
    forms: Counter[str] = Counter()
    for group in groups:
        if group.value["kind"] != ERROR:
            forms[group.form] += len(group.tasks)
    common = [form for form, count in forms.items() if count == max(forms.values())]
    usual = common[0] if len(common) == 1 else None
    far = {id(group) for group in _far(groups)}
    for group in groups:
        if group.value["kind"] == ERROR:
            group.mark = ERROR
        elif group.value.get("nan", 0) or group.value.get("inf", 0):
            group.mark = NAN
        elif group.form != usual:
            group.mark = SHAPE
        elif id(group) in far:
            group.mark = OUTLIER


def _far(groups: Sequence[_Group]) -> Iterator[_Group]:
    """Yields the groups whose numbers lie far from the others; see `grouped`."""
    for width in (1, 3):
        measured = [group for group in groups if len(group.measures) == width]
        if sum(len(group.tasks) for group in measured) < _CROWD:
            continue
        for place in range(width):
            middle = _median(_each(measured, place))
            deviation = median(abs(number - middle) for number in _each(measured, place))
            for group in measured:
                distance = abs(group.measures[place] - middle)
                if deviation == 0:
                    far = not math.isclose(group.measures[place], middle)
                else:
                    far = _FACTOR * distance / deviation > _MOST_Z
                if far:
                    yield group


def _each(groups: Sequence[_Group], place: int) -> list[float]:
    """Returns a number for each task."""
    return [group.measures[place] for group in groups for _ in group.tasks]


def _median(numbers: Sequence[float]) -> float:
    middle = median(numbers)
    # The sum of the two in the middle may be too large.
    return middle if math.isfinite(middle) else 2 * median(number / 2 for number in numbers)


def _numbers(groups: Sequence[_Group]) -> dict[str, Any] | None:
    numbers = _each([group for group in groups if len(group.measures) == 1], 0)
    if not numbers:
        return None
    return {"count": len(numbers), "min": min(numbers), "median": _median(numbers), "max": max(numbers)}
