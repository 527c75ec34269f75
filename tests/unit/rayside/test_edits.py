"""Tests edits of code in a process that runs, without Ray."""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import inspect
import itertools
import re
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from rayside.worker import edits, loaded_sources
from rayside.worker.edited_source import Refused

_numbers = itertools.count(1)
Load = Callable[[str], Any]


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Load]:
    """Imports a text as a module of its own."""
    names = []

    def import_text(text: str) -> Any:
        names.append(f"edited_{next(_numbers)}")
        file = tmp_path / f"{names[-1]}.py"
        file.write_text(dedent(text))
        spec = importlib.util.spec_from_file_location(names[-1], file)
        assert spec is not None and spec.loader is not None
        module = sys.modules[names[-1]] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    yield import_text
    for name in names:
        del sys.modules[name]


def edit(module: Any, before: str, after: str) -> str:
    """Applies the module's text with one part replaced; returns why not."""
    text = loaded_sources.text_of(module.__file__)
    assert before in text
    return edits.apply({module.__file__: text.replace(before, after)})


CODE = """
import asyncio
from functools import wraps

FACTOR = 2


def marked(function):
    @wraps(function)
    def inner(*args):
        return function(*args)
    return inner


@marked
def scaled(text):
    return int(text) * FACTOR


def outer(text, *, more=1):
    def inner():
        return int(text) + more
    return inner


def numbers(texts):
    for text in texts:
        yield int(text)


async def later(text):
    await asyncio.sleep(0)
    return int(text)


class Base:
    def name(self):
        return "base"


class Counter(Base):
    def __init__(self):
        self.seen = []

    def add(self, text):
        self.seen.append(int(text))
        return sum(self.seen)

    @staticmethod
    def parsed(text):
        return int(text)

    @property
    def last(self):
        return int(self.seen[-1])


key = lambda text: int(text)
"""


def test_each_kind_of_function_gets_the_edited_code(load: Load) -> None:
    module = load(CODE)
    kept, counter = module.scaled, module.Counter()
    counter.add("1")
    inner = module.outer("2.5")
    assert edit(module, "int(", "float(") == ""
    assert kept("2.5") == 5.0
    assert inner() == 3.5 and module.outer("1.5")() == 2.5
    assert list(module.numbers(["0.5"])) == [0.5]
    assert asyncio.run(module.later("0.5")) == 0.5
    assert counter.add("2.5") == 3.5, "its state stays"
    assert module.Counter.parsed("0.5") == 0.5 and counter.last == 2.5
    assert module.key("0.5") == 0.5


def test_what_the_text_has_anew_is_added(load: Load) -> None:
    module = load(CODE)
    counter = module.Counter()
    assert (
        edit(
            module,
            "        return sum(self.seen)\n",
            "        return math.floor(self.total())\n\n"
            "    def total(self):\n        return half(sum(self.seen)) if super().name() == 'base' else 0\n",
        )
        == ""
    )
    with pytest.raises(NameError, match="math"):
        counter.add("4")
    assert (
        edit(module, "import asyncio\n", "import asyncio\nimport math\n\ndef half(x):\n    return x / 2\n")
        == ""
    )
    assert counter.add("5") == 4


def test_a_changed_constant_and_a_changed_default_hold(load: Load) -> None:
    module = load(CODE)
    assert edit(module, "FACTOR = 2", "FACTOR = 3") == ""
    assert edit(module, "more=1", "more=10") == ""
    assert module.scaled("2") == 6
    assert module.outer("2")() == 12


def test_a_traceback_shows_the_edited_text(load: Load) -> None:
    module = load(CODE)
    assert (
        edit(module, "    return int(text) * FACTOR", "    text = text.strip()\n    return float(text)") == ""
    )
    with pytest.raises(ValueError, match="could not") as raised:
        module.scaled("x")
    assert traceback.extract_tb(raised.value.__traceback__)[-1].line == "return float(text)"


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("return int(text) * FACTOR", "return int(text) *", r"edited_\d+.py:17: invalid syntax"),
        ("return int(text) + more", "return int(text)", "outer.<locals>.inner .* other variables .*more"),
        ("class Counter(Base):", "class Counter:", "the bases of class Counter"),
        ("@marked\ndef scaled", "def scaled", "the decorators of scaled"),
        (
            "    def __init__(self):",
            "    __slots__ = ('seen',)\n    def __init__(self):",
            r"class Counter .*methods",
        ),
        ("more=1", "more=FACTOR", "the default values of outer"),
        ("FACTOR = 2", "FACTOR = 2\nprint('more')", "line 6 of .* is run only when"),
        ("FACTOR = 2", "FACTOR = 1 / 0", "line 5 of .* raised ZeroDivisionError"),
        ("FACTOR = 2", "FACTOR = 7\nMORE = 1 / 0", "line 6 of .* raised ZeroDivisionError"),
    ],
)
def test_what_a_process_cannot_be_given_is_refused_before_anything_is_changed(
    load: Load, before: str, after: str, reason: str
) -> None:
    module = load(CODE)
    inner = module.outer("2")
    text = loaded_sources.text_of(module.__file__)
    other = text.replace("return sum(self.seen)", "return 0")
    why = edits.apply({module.__file__: other.replace(before, after)})
    assert re.search(reason, why), why
    assert inner() == 3 and module.Counter().add("1") == 1 and module.scaled("2") == 4 and module.FACTOR == 2
    assert loaded_sources.text_of(module.__file__) == text


def test_texts_and_the_part_of_a_program_are_not_run(load: Load) -> None:
    module = load(CODE)
    program = '"""Counts."""\nif __name__ == "__main__":\n    raise SystemExit'
    assert edit(module, "FACTOR = 2\n", f"FACTOR = 2\n{program}\n") == ""
    assert loaded_sources.text_of(module.__file__).count("SystemExit") == 1


def test_a_file_that_is_not_there_is_refused() -> None:
    assert edits.apply({"/nowhere/other.py": "x = 1"}) == "/nowhere/other.py is no file of this job"


def test_a_function_that_came_by_value_gets_the_globals_that_its_new_code_names(
    load: Load, tmp_path: Path
) -> None:
    file = tmp_path / "driver.py"
    file.write_text(
        "import json, sys\nLIMIT = 3\n\ndef half(x):\n    return x / LIMIT\n\ndef work(x):\n    return x\n"
    )
    names: dict[str, Any] = {}
    exec(compile(file.read_text(), str(file), "exec"), names)
    alone = types.FunctionType(names["work"].__code__, {"__builtins__": __builtins__}, "work")
    edited = file.read_text().replace("    return x\n", "    return json.dumps(half(x))\n")
    assert edits.apply({str(file): edited}) == ""
    assert alone(6) == "2.0"
    # It names what has changed by way of another function.
    assert edits.apply({str(file): edited.replace("LIMIT = 3", "LIMIT = 2")}) == ""
    assert alone(6) == "3.0"


def test_a_change_is_known_before_it_is_made(load: Load) -> None:
    module = load(CODE)
    text = loaded_sources.text_of(module.__file__).replace(
        "outer(text, *, more=1)", "outer(text, extra, *, more=2)"
    )
    changed = edits.changed({module.__file__: text})
    assert str(inspect.signature(changed[module.outer])) == "(text, extra, *, more=2)"
    assert str(inspect.signature(module.outer)) == "(text, *, more=1)"
    with pytest.raises(Refused, match="invalid syntax"):
        edits.changed({module.__file__: text.replace("FACTOR = 2", "FACTOR =")})


def test_an_edit_waits_for_the_next_task(load: Load) -> None:
    module = load(CODE)
    text = loaded_sources.text_of(module.__file__).replace("* FACTOR", "* 10")
    edits.apply_later({module.__file__: text})
    assert module.scaled("1") == 2
    edits.apply_due()
    assert module.scaled("1") == 10 and not loaded_sources.due


def test_what_a_new_method_raises_is_refused_before_anything_is_changed(load: Load) -> None:
    module = load(CODE)
    added = "        return 0\n\n    @missing\n    def more(self):\n        return 1\n"
    assert "NameError" in edit(module, "        return sum(self.seen)\n", added)
    assert module.Counter().add("1") == 1 and not hasattr(module.Counter, "more")


def test_a_class_with_static_methods_alone_gets_another(load: Load) -> None:
    module = load("class Parsed:\n    @staticmethod\n    def of(text):\n        return int(text)\n")
    assert (
        edit(
            module,
            "        return int(text)\n",
            "        return 1\n\n    def more(self):\n        return 2\n",
        )
        == ""
    )
    assert module.Parsed.of("0") == 1 and module.Parsed().more() == 2


def test_a_new_method_beside_decorated_ones_has_the_globals_of_its_own_module(load: Load) -> None:
    other = load(CODE)
    sys.modules["edited_decorators"] = other
    try:
        module = load(
            "from edited_decorators import marked\nOWN = 1\n\nclass Kept:\n    @marked\n"
            "    def first(self):\n        return 0\n\n    def second(self):\n        return 0\n"
        )
    finally:
        del sys.modules["edited_decorators"]
    more = "    def second(self):\n        return 0\n\n    def third(self):\n        return OWN\n"
    assert edit(module, "    def second(self):\n        return 0\n", more) == ""
    assert module.Kept().third() == 1


def test_annotations_of_what_is_added_are_not_run_where_the_file_says_so(load: Load) -> None:
    module = load(
        "from __future__ import annotations\n\nclass Kept:\n    def first(self):\n        return 0\n"
    )
    after = "        return helper(1)\n\n    def more(self, x: Missing) -> Missing:\n        return x\n\n"
    after += "def helper(x: Missing) -> Missing:\n    return x\n"
    assert edit(module, "        return 0\n", after) == ""
    assert module.Kept().first() == 1 and module.Kept().more(2) == 2


def test_installed_files_are_not_noted_whichever_environment_has_them(tmp_path: Path) -> None:
    own, installed = tmp_path / "own.py", tmp_path / "lib" / "site-packages" / "library.py"
    installed.parent.mkdir(parents=True)
    for file in (own, installed):
        file.write_text("x = 1\n")
        loaded_sources.note(str(file))
    assert str(own) in loaded_sources.sources() and str(installed) not in loaded_sources.loaded


def test_a_new_method_has_its_classes_private_names(load: Load) -> None:
    module = load("class Kept:\n    def __init__(self):\n        self.__x = 1\n")
    after = "self.__x = 1\n\n    def more(self):\n        return self.__x, type(super())\n"
    assert edit(module, "self.__x = 1\n", after) == ""
    assert module.Kept().more() == (1, super)


def test_lines_that_have_moved_are_those_of_the_edited_text(load: Load) -> None:
    module = load("def share(x):\n    # as before\n    return 1 / x\n")
    assert edit(module, "    # as before\n", "    # as before\n    # and more\n") == ""
    with pytest.raises(ZeroDivisionError) as raised:
        module.share(0)
    assert traceback.extract_tb(raised.value.__traceback__)[-1].lineno == 4


def test_what_is_applied_at_once_holds_over_what_was_to_come(load: Load) -> None:
    module = load(CODE)
    path = module.__file__
    loaded_sources.note(path)
    text = loaded_sources.text_of(path)
    later, now = (text.replace("* FACTOR", f"* {factor}") for factor in (10, 100))
    edits.apply_later({path: later})
    assert loaded_sources.sources()[path] == hashlib.sha256(later.encode()).hexdigest()
    assert edits.apply({path: now}) == ""
    edits.apply_due()
    assert module.scaled("1") == 100
    # So it is with the text as it was submitted: it is no edit of this process.
    other = load(CODE)
    edits.apply_later({other.__file__: later})
    assert edits.apply({other.__file__: text}) == ""
    edits.apply_due()
    assert other.scaled("1") == 2
