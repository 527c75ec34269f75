"""Random Python programs: loops, closures, generators, exceptions, async code, decorators, classes.

The same seed gives the same program on every Python from 3.10 on. A program ends by itself, has no input,
and stores its results in the variable `result`.
"""

from __future__ import annotations

import random

_HEAD = """\
import asyncio, contextlib, functools

LOG = []


def note(*values):
    LOG.append(values)
    return len(LOG)


def counted(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        note("call", function.__name__)
        try:
            return function(*args, **kwargs)
        finally:
            note("return", function.__name__)
    return wrapper


@contextlib.contextmanager
def managed(name):
    note("enter", name)
    try:
        yield name
    except ValueError as error:
        note("swallowed", str(error))
    finally:
        note("exit", name)


"""


class _Writer:
    """Writer of one program; `names` are the variables that are bound at the current place."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.functions: list[str] = []
        self.count = 0

    def new(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count}"

    def put(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    # --- expressions -------------------------------------------------------------------------

    def value(self, names: list[str]) -> str:
        pick = self.random.randrange(9)
        number = str(self.random.randrange(-3, 9))
        if pick < 4 and names:
            return self.random.choice(names)
        if pick == 4 and names:
            return f"({self.random.choice(names)} + {number})"
        if pick == 5 and names:
            return f"({self.random.choice(names)} * 2 if {self.condition(names)} else {number})"
        if pick == 6:
            return f"sum(each + {number} for each in range({self.random.randrange(4)}))"
        if pick == 7:
            return f"len([each for each in range({self.random.randrange(4)}) if each % 2])"
        return number

    def condition(self, names: list[str]) -> str:
        left = self.random.choice(names) if names else "3"
        test = f"{left} % {self.random.randrange(2, 4)} == {self.random.randrange(2)}"
        if self.random.random() < 0.25 and names:
            return f"{test} {self.random.choice(['and', 'or'])} not {self.random.choice(names)} > 2"
        return test

    # --- statements --------------------------------------------------------------------------

    def block(self, depth: int, names: list[str], budget: int, kind: str) -> None:
        """Writes one to three statements, in a function of that kind: "plain", "generator" or "async"."""
        names = list(names)
        for _ in range(self.random.randrange(1, 4)):
            self.statement(depth, names, budget, kind)

    def statement(self, depth: int, names: list[str], budget: int, kind: str) -> None:
        simple = [self.assign, self.note, self.long_note, self.augment, self.unpack, self.one_line]
        compound = [
            *(self.if_, self.for_, self.while_, self.try_, self.with_, self.closure, self.match),
            *(self.try_finally, self.for_else, self.comprehension, self.handler_name),
        ]
        if kind == "generator":
            simple.append(self.yield_)
        if kind == "async":
            simple.append(self.await_)
            compound += [self.async_for, self.async_with]
        choose = compound if budget > 0 and self.random.random() < 0.55 else simple
        self.random.choice(choose)(depth, names, budget - 1, kind)

    def assign(self, depth: int, names: list[str], budget: int, kind: str) -> None:
        name = self.new("v")
        self.put(depth, f"{name} = {self.value(names)}")
        names.append(name)

    def augment(self, depth: int, names: list[str], budget: int, kind: str) -> None:
        if not names:
            return self.assign(depth, names, budget, kind)
        self.put(depth, f"{self.random.choice(names)} += {self.value(names)}")
        return None

    def unpack(self, depth: int, names: list[str], budget: int, kind: str) -> None:
        first, second = self.new("v"), self.new("v")
        values = [self.value(names), self.value(names)]
        # With sys.monitoring on 3.12 debugpy misses the start of a generator, on a line that had a loop.
        while all("for each in" in value for value in values):
            values[1] = self.value(names)
        self.put(depth, f"{first}, {second} = {', '.join(values)}")
        names += [first, second]

    def note(self, depth: int, names: list[str], budget: int, kind: str) -> None:
        self.put(depth, f"note({self.value(names)})")

    def long_note(self, depth: int, names: list[str], budget: int, kind: str) -> None:
        self.put(depth, "note(")
        for _ in range(self.random.randrange(1, 4)):
            self.put(depth + 1, f"{self.value(names)},")
        self.put(depth, ")")

    def one_line(self, depth: int, names: list[str], budget: int, kind: str) -> None:
        name = self.new("v")
        form = self.random.randrange(4)
        if form == 0:
            self.put(depth, f"for {name} in range(3): note({name})")
        elif form == 1:
            self.put(depth, f"{name} = 3")
            self.put(depth, f"while {name}: {name} -= 1")
            names.append(name)
        elif form == 2:
            self.put(depth, f"{name} = [note(each) for each in range(2)] if {self.condition(names)} else []")
        else:
            self.put(depth, f"note((lambda x: x + {self.value(names)})(1))")

    def if_(self, depth: int, names: list[str], budget: int, kind: str) -> None:
        self.put(depth, f"if {self.condition(names)}:")
        self.block(depth + 1, names, budget, kind)
        if self.random.random() < 0.4:
            self.put(depth, f"elif {self.condition(names)}:")
            self.block(depth + 1, names, budget, kind)
        if self.random.random() < 0.6:
            self.put(depth, "else:")
            self.block(depth + 1, names, budget, kind)

    def for_(self, depth: int, names: list[str], budget: int, kind: str) -> None:
        name = self.new("i")
        self.put(depth, f"for {name} in range({self.random.randrange(1, 4)}):")
        self.block(depth + 1, [*names, name], budget, kind)
        if self.random.random() < 0.5:
            self.put(depth + 1, f"if {self.condition([name])}:")
            self.put(depth + 2, self.random.choice(["continue", "break"]))
            self.block(depth + 1, [*names, name], budget, kind)

    def for_else(self, depth: int, names: list[str], budget: int, kind: str) -> None:
        self.for_(depth, names, budget, kind)
        self.put(depth, "else:")
        self.block(depth + 1, names, budget, kind)

    def while_(self, depth: int, names: list[str], budget: int, kind: str) -> None:
        name = self.new("n")
        self.put(depth, f"{name} = {self.random.randrange(1, 4)}")
        self.put(depth, f"while {name} > 0:" if self.random.random() < 0.6 else "while True:")
        self.put(depth + 1, f"{name} -= 1")
        self.block(depth + 1, names, budget, kind)
        self.put(depth + 1, f"if {name} <= 0:")
        self.put(depth + 2, "break")

    def comprehension(self, depth: int, names: list[str], budget: int, kind: str) -> None:
        name = self.new("v")
        self.put(depth, f"{name} = sum([")
        self.put(depth + 1, f"each + {self.value(names)}")
        self.put(depth + 1, f"for each in range({self.random.randrange(1, 4)})")
        self.put(depth + 1, f"if {self.condition(['each'])}")
        self.put(depth, "])")
        names.append(name)

    def try_(self, depth: int, names: list[str], budget: int, kind: str) -> None:
        self.put(depth, "try:")
        self.block(depth + 1, names, budget, kind)
        if self.random.random() < 0.7:
            self.put(depth + 1, f"if {self.condition(names)}:")
            self.put(depth + 2, f"raise ValueError({self.value(names)})")
        self.block(depth + 1, names, budget, kind)
        self.put(depth, "except ValueError:")
        self.block(depth + 1, names, budget, kind)
        if self.random.random() < 0.5:
            self.put(depth, "else:")
            self.block(depth + 1, names, budget, kind)
        if self.random.random() < 0.5:
            self.put(depth, "finally:")
            self.put(depth + 1, f"note({self.value(names)})")

    def try_finally(self, depth: int, names: list[str], budget: int, kind: str) -> None:
        self.put(depth, "with contextlib.suppress(KeyError):")
        self.put(depth + 1, "try:")
        self.block(depth + 2, names, budget, kind)
        if self.random.random() < 0.5:
            self.put(depth + 2, "{}['missing']")
        self.put(depth + 1, "finally:")
        self.block(depth + 2, names, budget, kind)

    def handler_name(self, depth: int, names: list[str], budget: int, kind: str) -> None:
        name = self.new("e")
        self.put(depth, "try:")
        self.put(depth + 1, f"note(1 // ({self.value(names)} % 2))")
        self.put(depth, f"except (ZeroDivisionError, ValueError) as {name}:")
        self.put(depth + 1, f"note(type({name}).__name__)")
        self.block(depth + 1, names, budget, kind)

    def with_(self, depth: int, names: list[str], budget: int, kind: str) -> None:
        name = self.new("w")
        self.put(depth, f"with managed('{name}') as {name}:")
        self.block(depth + 1, names, budget, kind)
        if self.random.random() < 0.5:
            self.put(depth + 1, f"if {self.condition(names)}:")
            self.put(depth + 2, f"raise ValueError('{name}')")

    def match(self, depth: int, names: list[str], budget: int, kind: str) -> None:
        self.put(depth, f"match {self.value(names)}:")
        self.put(depth + 1, "case 0 | 1:")
        self.block(depth + 2, names, budget, kind)
        self.put(depth + 1, f"case int() if {self.condition(names)}:")
        self.block(depth + 2, names, budget, kind)
        self.put(depth + 1, "case _:")
        self.block(depth + 2, names, budget, kind)

    def closure(self, depth: int, names: list[str], budget: int, kind: str) -> None:
        name, argument = self.new("inner"), self.new("a")
        if self.random.random() < 0.4:
            self.put(depth, "@counted")
        self.put(depth, f"def {name}({argument}):")
        if names and self.random.random() < 0.3:
            captured = self.random.choice(names)
            if not captured.startswith(("a", "i", "n")):
                self.put(depth + 1, f"note({captured})")
        self.block(depth + 1, [argument], min(budget, 1), "plain")
        self.put(depth + 1, f"return {self.value([argument])}")
        self.put(depth, f"note({name}({self.value(names)}))")

    def yield_(self, depth: int, names: list[str], budget: int, kind: str) -> None:
        form = self.random.randrange(3)
        if form == 0:
            name = self.new("v")
            self.put(depth, f"{name} = yield {self.value(names)}")
        elif form == 1:
            self.put(depth, f"yield {self.value(names)}")
        else:
            self.put(depth, f"yield from range({self.random.randrange(3)})")

    def await_(self, depth: int, names: list[str], budget: int, kind: str) -> None:
        name = self.new("v")
        self.put(depth, f"{name} = await asyncio.sleep(0, {self.value(names)})")
        names.append(name)

    def async_for(self, depth: int, names: list[str], budget: int, kind: str) -> None:
        name = self.new("i")
        self.put(depth, f"async for {name} in ticks({self.random.randrange(1, 4)}):")
        self.block(depth + 1, [*names, name], budget, kind)

    def async_with(self, depth: int, names: list[str], budget: int, kind: str) -> None:
        self.put(depth, "async with Guard() as guard:")
        self.put(depth + 1, "note(guard.depth)")
        self.block(depth + 1, names, budget, kind)

    # --- definitions -------------------------------------------------------------------------

    def function(self) -> None:
        name, argument = self.new("f"), self.new("a")
        if self.random.random() < 0.3:
            self.put(0, "@counted")
        self.put(0, f"def {name}({argument}, extra=2, *rest, key=1):")
        if self.random.random() < 0.3:
            self.put(1, '"""Has a docstring."""')
        self.block(1, [argument, "extra", "key"], 2, "plain")
        self.put(1, f"return {self.value([argument, 'extra'])}")
        self.finish(f"{name}({self.random.randrange(5)})")

    def generator(self) -> None:
        name, argument = self.new("g"), self.new("a")
        self.put(0, f"def {name}({argument}):")
        self.block(1, [argument], 2, "generator")
        self.put(1, f"yield {argument}")
        self.block(1, [argument], 1, "generator")
        self.finish(f"list({name}({self.random.randrange(4)}))")

    def coroutine(self) -> None:
        name, argument = self.new("c"), self.new("a")
        self.put(0, f"async def {name}({argument}):")
        self.block(1, [argument], 2, "async")
        self.put(1, f"return {argument}")
        self.finish(f"asyncio.run({name}({self.random.randrange(4)}))")

    def klass(self) -> None:
        name, field = self.new("C"), self.new("field")
        self.put(0, f"class {name}:")
        self.put(1, f"{field} = {self.value([])}")
        if self.random.random() < 0.5:
            self.put(1, f"for item in range({self.random.randrange(1, 3)}):")
            self.put(2, f"{field} += item")
        self.put(1, "def __init__(self, start):")
        self.put(2, "self.start = start")
        self.put(1, "def work(self, extra):")
        self.block(2, ["extra"], 1, "plain")
        self.put(2, f"return self.start + self.{field} + extra")
        self.put(1, "@property")
        self.put(1, "def twice(self):")
        self.put(2, "return self.start * 2")
        self.put(1, "@staticmethod")
        self.put(1, f"def plain(x): return x + {self.random.randrange(3)}")
        self.finish(f"[{name}(2).work(1), {name}(3).twice, {name}.plain(1)]")

    def finish(self, call: str) -> None:
        self.lines += ["", "", ""]
        self.functions.append(call)


_TAIL = """\
async def ticks(count):
    for index in range(count):
        await asyncio.sleep(0)
        yield index


class Guard:
    depth = 0

    async def __aenter__(self):
        self.depth += 1
        return self

    async def __aexit__(self, *details):
        note("left", details[0] is None)
        return True


"""


def program(seed: int) -> str:
    """Returns the text of a program."""
    writer = _Writer(seed)
    kinds = [writer.function, writer.generator, writer.coroutine, writer.klass]
    writer.random.shuffle(kinds)
    for kind in kinds:
        kind()
    if writer.random.random() < 0.5:
        writer.function()
    main = ["total = []"]
    for call in writer.functions:
        main += [
            "try:",
            f"    total.append({call})",
            "except Exception as error:",
            "    note(type(error).__name__)",
        ]
    return _HEAD + _TAIL + "\n".join(writer.lines) + "\n".join([*main, "result = (total, LOG)", ""])
