"""Text drawing of one expression's values in many tasks, grouped by the relay, for terminals and editors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rayside.dap.additions import title_of
from rayside.plain import counted, line

# Limits: values that are drawn, characters of each, and tasks that are named for one value.
_MOST_VALUES, _LONGEST, _MOST_NAMED = 20, 300, 3
_MARKS = {
    "error": "raises",
    "nan": "NaN or infinity",
    "shape": "another type or shape",
    "outlier": "far from the others",
}
# Types that are not shown, since their values are clear without.
_PLAIN = frozenset({"int", "float", "bool", "NoneType"})


def drawn(answer: Mapping[str, Any]) -> Iterator[str]:
    """Draws the relay's answer to `compare`, line by line."""
    numbers, groups, failed = answer["numbers"], answer["groups"], answer["failed"]
    head = f"{line(answer['expression'], _LONGEST)}  in {counted(answer['tasks'], 'stopped task')}"
    if numbers is not None and numbers["min"] != numbers["max"]:
        head += f": {_short(numbers['min'])} to {_short(numbers['max'])}, median {_short(numbers['median'])}"
    yield head
    for group in groups[:_MOST_VALUES]:
        mark = f"  <- {_MARKS[group['mark']]}" if group["mark"] else ""
        alike = "  (it differs in what is not shown)" if group["alike"] else ""
        yield f"{group['count']}  {line(_value(group['value']), _LONGEST)}{alike}{mark}"
        yield f"     {_named(group['tasks'])}"
    rest = groups[_MOST_VALUES:]
    if rest:
        tasks = sum(group["count"] for group in rest)
        values = counted(len(rest), "other value")
        yield f"{counted(tasks, 'task')} with {values} (debug --compare --json has them)"
    if answer["left_out"]:
        yield f"{counted(answer['left_out'], 'task')} left out: too many"
    for task in failed[:_MOST_VALUES]:
        yield f"{_title(task)} is not among them: {line(task['why'])}"
    if len(failed) > _MOST_VALUES:
        yield f"{counted(len(failed) - _MOST_VALUES, 'more task')} not among them"


def _value(value: Mapping[str, Any]) -> str:
    kind, name, shown = value["kind"], value["type"], value["shown"]
    size = f" of {value['size']:,}" if "size" in value else ""
    if kind == "array":
        text = f"{name} {_shape(value)} {value.get('dtype', '')}"
        text += f" on {value['device']}" if "device" in value else ""
        measured = ", ".join([*([shown] if shown else []), *_measures(value)])
        return f"{text}: {measured}" if measured else text
    if kind == "table":
        columns = [
            " ".join([column["name"], column["dtype"], ", ".join(_measures(column))]).strip()
            for column in value.get("columns", [])
        ]
        more = max(0, [*value.get("shape", []), 0, 0][1] - len(columns))
        columns += [f"{more:,} more columns"] if more else []
        columns += _sample(value)
        return f"{name} {_shape(value)}: {'; '.join(columns)}"
    if kind in ("container", "text"):
        return f"{shown}  ({', '.join([f'{name}{size}', *_measures(value)])})"
    return shown if kind == "error" or name in _PLAIN else f"{shown}  ({name})"


def _measures(value: Mapping[str, Any]) -> list[str]:
    texts = []
    if "min" in value and "max" in value:
        texts.append(f"{_short(value['min'])} to {_short(value['max'])}")
    if "mean" in value:
        texts.append(f"mean {_short(value['mean'])}")
    texts += [
        f"{value[key]:,} {name}" for key, name in (("nan", "NaN"), ("inf", "infinite")) if value.get(key)
    ]
    return [*texts, *_sample(value)]


def _sample(value: Mapping[str, Any]) -> list[str]:
    return [f"of a sample of {value['sample']:,}"] if "sample" in value else []


def _shape(value: Mapping[str, Any]) -> str:
    return f"({', '.join(map(str, value.get('shape', [])))})"


def _short(number: float) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:.6g}"


def _named(tasks: Sequence[Mapping[str, Any]]) -> str:
    more = len(tasks) - _MOST_NAMED
    return "; ".join(map(_title, tasks[:_MOST_NAMED])) + (f"; {more:,} more" if more > 0 else "")


def _title(task: Mapping[str, Any]) -> str:
    title = line(title_of(task["task"], task["pid"], task["node"]))
    return title if task["thread"] in ("", "MainThread") else f"{title} ({line(task['thread'])})"
