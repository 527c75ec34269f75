"""Tests breakpoints that are compiled in, in real processes of each Python: they stop as debugpy's own do.

Runs on each Python from 3.10 to 3.14 that is on PATH or in pyenv's folder, with this one's debugpy; programs
run with each of its ways of tracing too.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from rayside.dap.framing import Message
from rayside.relay.connection import call
from rayside.worker import evaluated
from rayside.worker.evaluated import compiled, reached
from tests.integration.pythons import (
    Debuggee,
    debuggee,
    each_python,
    each_python_once,
    hows_environment,
    python_of,
)
from tests.patience import PATIENCE
from tests.programs import program

_STATE = "__import__('sys').modules['rayside.worker.evaluated.compiled']._breakpoints"

# The differential test has so many programs; a longer run may ask for more.
PROGRAMS = int(os.environ.get("RAYSIDE_TEST_PROGRAMS", "8"))

_BEGIN = """\
import asyncio, functools, gc, importlib, json, pickle, sys, threading, time, types
import debugpy
debugpy.configure(subProcess=False)
print(debugpy.listen(("127.0.0.1", 0))[1], flush=True)
sys.path.insert(0, sys.argv[1])
from rayside.worker import tracing
tracing.sleep()
tracing.wake_by_itself()


def is_traced():
    if sys.argv[2] == "monitoring":
        return sys.monitoring.get_tool(sys.monitoring.DEBUGGER_ID) is not None
    return sys.gettrace() is not None
"""
_END = """

for line in sys.stdin:
    word, _, rest = line.strip().partition(" ")
    print(json.dumps(globals()[word](*json.loads(rest or "[]"))), flush=True)
"""


class Process:
    """A debuggee that calls its own functions when it is told to."""

    def __init__(self, running: Debuggee) -> None:
        self.running = running
        self._next = 1

    def begin_call(self, function: str, *arguments: object) -> None:
        self.running.say(f"{function} {json.dumps(arguments)}")

    async def result(self) -> Any:
        return json.loads(await asyncio.wait_for(asyncio.to_thread(self.running.hear), PATIENCE))

    async def call(self, function: str, *arguments: object) -> Any:
        self.begin_call(function, *arguments)
        return await self.result()

    async def compile(self) -> None:
        assert await self.running.evaluate(call(compiled.begin)) == "True"
        await self.running.evaluate(call(evaluated.begin, "a"))

    async def set(self, *markers: str, file: Path | None = None, **point: Any) -> None:
        """Sets a breakpoint at each marker; with a `condition`, `message` or `counted`, as the relay does."""
        specs = []
        for marker in markers:
            spec: Message = {"line": self.running.line(marker, file)}
            if point:
                key, self._next = self._next, self._next + 1
                values = (
                    point.get("condition", ""),
                    point.get("message", ""),
                    point.get("counted", False),
                    "",
                    5.0,
                )
                await self.running.evaluate(call(reached.set_points, {key: values}))
                spec["condition"] = f"__rayside__({key})"
            specs.append(spec)
        await self.running.client.set_breakpoints(str(file or self.running.script), specs)

    async def traces(self) -> bool:
        """Returns whether pydevd traces it for its breakpoints, once what ran before has ended."""
        # Under the lock, for between `traced` and what follows from it another thread may be settling.
        lock = f"{_STATE}._lock"
        traced = f"[{lock}.acquire(), {_STATE}.traced, {lock}.release()][1]"
        for _ in range(200):
            if await self.running.evaluate(traced) == "False":
                return False
            await asyncio.sleep(0.05)
        return True

    async def stop(self, marker: str, file: Path | None = None) -> Message:
        stop = await self.running.stopped()
        frame = await self.running.frame(stop)
        assert frame["line"] == self.running.line(marker, file), (stop, frame)
        return stop

    async def value(self, stop: Message, expression: str) -> str:
        frame = (await self.running.frame(stop))["id"]
        answer = await self.running.client.request(
            "evaluate", {"expression": expression, "context": "watch", "frameId": frame}
        )
        return str(answer["result"])


@contextmanager
def started(version: str, how: str, folder: Path, code: str) -> Iterator[Debuggee]:
    environment = hows_environment(how)
    with debuggee(python_of(version), folder, _BEGIN + code + _END, [how], environment) as running:
        yield running


@asynccontextmanager
async def played(version: str, how: str, folder: Path, code: str) -> AsyncIterator[Process]:
    with started(version, how, folder, code) as running:
        await running.attach()
        process = Process(running)
        await process.compile()
        yield process
        await running.client.disconnect()


# --- what stops ------------------------------------------------------------------------------

FUNCTIONS = """

def turn(x):
    total = x  # turn
    return total + 1

def hot(n):
    total = 0
    for i in range(n):
        total += i  # hot
    return total

def closures(n):
    k = 2
    def inner(x):
        return x * k  # inner
    return [inner(i) for i in range(n)]

class Actor:
    def __init__(self): self.count = 0
    def work(self, x):
        self.count += x  # method
        return self.count

actor = Actor()
def work(x):
    return actor.work(x)

def numbers(n):
    for i in range(n):
        yield i  # generator

def generated(n):
    return list(numbers(n))

async def coroutine(n):
    for i in range(n):
        await asyncio.sleep(0)  # coroutine
    return n

def awaited(n):
    return asyncio.run(coroutine(n))

def maybe(flag):
    if flag:
        late = 1
    return flag  # maybe

def threaded(x):
    result = []
    thread = threading.Thread(target=lambda: result.append(turn(x)))
    thread.start()
    thread.join()
    return result

def is_original(name):
    code = globals()[name].__code__
    breakpoints = sys.modules["rayside.worker.evaluated.compiled"]._breakpoints
    return code is breakpoints.original(code)

def comprehended(count):
    squares = [each * each for each in range(count)]
    return len(squares)  # after
"""


@pytest.mark.gate
@each_python_once
async def test_each_kind_of_function_stops_without_tracing(version: str, how: str, tmp_path: Path) -> None:
    calls = [("turn", "turn", [1]), ("inner", "closures", [1]), ("method", "work", [1])]
    calls += [("generator", "generated", [1]), ("coroutine", "awaited", [1]), ("turn", "threaded", [1])]

    async with played(version, how, tmp_path, FUNCTIONS) as process:
        for marker, function, arguments in calls:
            await process.set(marker)
            assert not await process.traces()
            assert not await process.call("is_traced")
            process.begin_call(function, *arguments)
            stop = await process.stop(marker)
            assert stop["reason"] == "breakpoint"
            assert len(stop["hitBreakpointIds"]) == 1
            await process.running.go_on(stop)
            await process.result()
            assert not await process.call("is_traced")
        await process.set()
        assert all([await process.call("is_original", name) for name in ("turn", "closures", "numbers")])
        await process.call("turn", 1)


@each_python_once
async def test_a_stop_is_stepped_from_and_what_is_evaluated_there_does_not_stop(
    version: str, how: str, tmp_path: Path
) -> None:
    async with played(version, how, tmp_path, FUNCTIONS) as process:
        await process.set("hot")
        process.begin_call("hot", 2)
        stop = await process.stop("hot")
        assert await process.value(stop, "(i, hot(3))") == "(0, 3)"
        await process.running.go_on(stop, "next")
        stop = await process.running.stopped()
        assert stop["reason"] == "step"
        await process.running.go_on(stop, "next")
        # Stepping comes to the line, and so does the breakpoint: they are one stop.
        stop = await process.stop("hot")
        assert await process.value(stop, "i") == "1"
        await process.running.go_on(stop)
        assert await process.result() == 1
        assert not await process.call("is_traced")
        # Where a step comes to the line and the condition does not hold, it does in the next turn.
        await process.set("hot", condition="i in (1, 3)")
        process.begin_call("hot", 4)
        stop = await process.stop("hot")
        for _ in range(2):
            await process.running.go_on(stop, "next")
            stop = await process.running.stopped()
        assert await process.value(stop, "i") == "2"
        await process.running.go_on(stop)
        stop = await process.stop("hot")
        assert await process.value(stop, "i") == "3"
        await process.running.go_on(stop)
        assert await process.result() == 6


TRACED = """

import rayside.worker.workarounds
rayside.worker.workarounds.apply()

def recorded(n):
    lines = set()
    def record(frame, event, arg):
        lines.add(frame.f_lineno - frame.f_code.co_firstlineno)
        return record if frame.f_code.co_name == "work" else None
    sys.settrace(record)
    try:
        work(n)
    finally:
        sys.settrace(None)
    return sorted(lines)

def work(n):
    total = 0
    for i in range(n):
        total += i  # work
    if total > 100:
        total = -1
    return total
"""


@each_python_once
async def test_another_trace_function_misses_no_line_at_a_stop_and_a_step_tells_what_it_misses(
    version: str, how: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with played(version, how, tmp_path, TRACED) as process:
        await process.set("work")
        told = []
        for command in ("continue", "next", "next", "continue"):
            process.begin_call("recorded", 1)
            stop = await process.stop("work")
            await process.running.go_on(stop, command)
            if command == "next":
                await process.running.go_on(await process.running.stopped())
            lines = await process.result()
            assert {0, 1, 2, 3} <= set(lines)
            assert command == "next" or {4, 6} <= set(lines)
            told.append(capfd.readouterr().err)
        assert "PYDEV DEBUGGER WARNING" not in "".join(told)
        is_replaced = how == "settrace"
        counted = [text.count("rayside: __main__ traces this thread too") for text in told]
        assert counted == [0, is_replaced, 0, 0]


@pytest.mark.gate
@each_python_once
async def test_conditions_see_variables_cells_and_globals_and_what_raises_is_false(
    version: str, how: str, tmp_path: Path
) -> None:
    async with played(version, how, tmp_path, FUNCTIONS) as process:
        for marker, condition, function, value in (
            ("hot", "i == 3 and total < 10", "hot", "i"),
            ("hot", "i == len(actor.__class__.__name__) - 2", "hot", "i"),
            ("inner", "x + k == 5", "closures", "x"),
            ("generator", "[i for each in (1, 2) if i == 3]", "generated", "i"),
            ("coroutine", "(lambda: n)() and i == 3", "awaited", "i"),
            ("hot", "locals()['i'] == 3", "hot", "i"),
        ):
            await process.set(marker, condition=condition)
            assert not await process.traces()
            process.begin_call(function, 5)
            stop = await process.stop(marker)
            assert await process.value(stop, value) == "3", condition
            await process.running.go_on(stop)
            await process.result()
        for condition in ("late == 1", "nothing_of_that_name", "1 / 0", "flag.missing"):
            await process.set("maybe", condition=condition)
            assert await process.call("maybe", False) is False
        # A comprehension's own variable is not the function's, also where it is one of its variables (3.12).
        await process.set("after", condition="each == 2")
        assert await process.call("comprehended", 3) == 3
        await process.set("maybe", condition="late == 1")
        process.begin_call("maybe", True)
        await process.running.go_on(await process.stop("maybe"))
        assert await process.result() is True


@each_python_once
async def test_a_condition_that_raises_is_told_once_and_a_message_each_time(
    version: str, how: str, tmp_path: Path
) -> None:
    async def reports(process: Process) -> list[tuple[str, str]]:
        events = []
        while not process.running.client.events.empty():
            event = await process.running.client.events.get()
            if event and event["event"] == "raysideReached":
                events.append((event["body"]["what"], event["body"]["text"]))
        return events

    async with played(version, how, tmp_path, FUNCTIONS) as process:
        await process.set("hot", condition="i / 0 > 1")
        await process.call("hot", 3)
        await process.running.evaluate("1")  # what was sent before has come
        assert await reports(process) == [("error", "ZeroDivisionError: division by zero")]
        await process.set("hot", condition="i % 2 == 0", message="i is {i}")
        await process.call("hot", 5)
        await process.running.evaluate("1")
        assert await reports(process) == [("message", f"i is {i}") for i in (0, 2, 4)]


# --- code that comes later, and code that runs already ---------------------------------------

MODULE = """
import threading
value = 0
for i in range(2):
    value += i  # module
class Settings:
    size = 3  # class
def later(x):
    return x + 1  # later
"""

LATER = """

def come(folder, how):
    file = folder + "/module_later.py"
    if how == "import":
        sys.path.insert(0, folder)
        return importlib.import_module("module_later").later(1)
    with open(file) as opened:
        code = compile(opened.read(), file, "exec")
    if how == "exec":
        names = {"__name__": "executed"}
        exec(code, names)
        return names["later"](1)
    code = next(each for each in code.co_consts if getattr(each, "co_name", "") == "later")
    return types.FunctionType(code, {})(1)

def loop():
    global going
    going = True
    turns = 0
    while going:
        time.sleep(0.01)
        turns += 1  # loop
    return turns

def begin_loop():
    threading.Thread(target=loop, daemon=True).start()

def end_loop():
    global going
    going = False

def waits():
    x = 1
    yield x
    x += 1  # waits
    yield x

def begin_waiting():
    global waiting
    waiting = waits()
    return next(waiting)

def go_on_waiting():
    return next(waiting)

def rests():
    global going
    going = True
    while going:
        time.sleep(0.01)

def rests_in_a_call():
    rests()
    result = 1  # rested
    return result

def fails():
    rests()
    raise ValueError

def fails_in_a_call():
    try:
        fails()
    except ValueError:
        result = 1  # caught
    return result

def ends(what):
    error = what + "!"
    raise ValueError(error)  # raises

def thread_ends():
    threading.Thread(target=ends, args=["a thread"]).start()

def rewritten(x):
    return x + 1  # rewritten

def compiled_in(x):
    return x + 1  # compiled

def read_by_a_compiler():
    names = {"__name__": "numba.core", "function": rewritten}
    exec("code = function.__code__", names)
    return len(names["code"].co_consts)

def forked(folder):
    import os, signal
    breakpoints = sys.modules["rayside.worker.evaluated.compiled"]._breakpoints
    held, over = threading.Event(), threading.Event()
    def hold():
        with breakpoints._lock:
            held.set()
            over.wait()
    threading.Thread(target=hold, daemon=True).start()
    held.wait()
    pid = os.fork()
    if not pid:
        signal.alarm(20)
        sys.path.insert(0, folder)
        importlib.import_module("module_later")
        os._exit(0)
    over.set()
    return os.waitpid(pid, 0)[1]
"""


@each_python_once
@pytest.mark.parametrize("way", ["import", "exec", "function"])
async def test_code_that_comes_later_stops_too(version: str, how: str, way: str, tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    module = folder / "module_later.py"
    module.write_text(MODULE)
    markers = ["later"] if way == "function" else ["module", "module", "class", "later"]

    async with played(version, how, tmp_path, LATER) as process:
        await process.set("module", "class", "later", file=module)
        assert not await process.traces()
        process.begin_call("come", str(folder), way)
        for marker in markers:
            stop = await process.stop(marker, module)
            if way == "import":
                assert await process.running.evaluate(f"{_STATE}.traced") == "False"
            await process.running.go_on(stop)
        assert await process.result() == 2
        assert not await process.traces()


@each_python_once
@pytest.mark.parametrize("way", ["import", "exec", "function"])
async def test_code_that_can_not_be_changed_is_traced_and_runs_as_it_is(
    version: str, how: str, way: str, tmp_path: Path
) -> None:
    module = tmp_path / "module_later.py"
    module.write_text(MODULE)

    async with played(version, how, tmp_path, LATER) as process:
        broken = "setattr(__import__('sys').modules['rayside.worker.evaluated.inserted'], 'with_calls', None)"
        await process.running.evaluate(broken)
        await process.set("later", file=module)
        process.begin_call("come", str(tmp_path), way)
        await process.running.go_on(await process.stop("later", module))
        assert await process.result() == 2


@each_python_once
async def test_a_fork_imports_what_has_breakpoints_whoever_compiled_then(
    version: str, how: str, tmp_path: Path
) -> None:
    module = tmp_path / "module_later.py"
    module.write_text(MODULE)

    async with played(version, how, tmp_path, LATER) as process:
        await process.set("later", file=module, condition="x == -1")
        assert await process.call("forked", str(tmp_path)) == 0


@each_python_once
async def test_with_another_bytecode_than_ours_it_is_traced(version: str, how: str, tmp_path: Path) -> None:
    with started(version, how, tmp_path, FUNCTIONS) as running:
        await running.attach()
        await running.evaluate("setattr(__import__('bytecode'), '__version__', '0.13.0')")
        assert await running.evaluate(call(compiled.begin)) == "False"
        process = Process(running)
        await running.evaluate(call(evaluated.begin, "a"))
        await process.set("hot", condition="i == 2")
        process.begin_call("hot", 4)
        await running.go_on(await process.stop("hot"))
        assert await process.result() == 6
        await running.client.disconnect()


@each_python_once
async def test_what_was_made_for_functions_that_are_gone_is_gone(
    version: str, how: str, tmp_path: Path
) -> None:
    """Each task may unpickle a function with globals of its own."""

    async with played(version, how, tmp_path, FUNCTIONS) as process:
        await process.set("turn", condition="x == -1")
        before = int(await process.running.evaluate(f"len({_STATE}.codes._made)"))
        make = f"{_STATE}.compiled_in({_STATE}.original(turn.__code__), {{'data': [0] * 1000}})"
        turn = "__import__('sys').modules['__main__'].turn"
        await process.running.evaluate(f"[{make} for _ in range(50)] and None".replace("turn", turn))
        await process.running.evaluate("__import__('gc').collect()")
        assert int(await process.running.evaluate(f"len({_STATE}.codes._made)")) <= before + 1


@each_python_once
async def test_what_runs_and_what_waits_is_traced_until_it_has_ended(
    version: str, how: str, tmp_path: Path
) -> None:
    async with played(version, how, tmp_path, LATER) as process:
        await process.call("begin_loop")
        assert await process.call("begin_waiting") == 1
        await process.set("loop", "waits")
        stop = await process.stop("loop")
        await process.set("waits")
        await process.running.go_on(stop)
        await process.call("end_loop")
        process.begin_call("go_on_waiting")
        stop = await process.stop("waits")
        await process.running.go_on(stop)
        assert await process.result() == 2
        await process.set("loop")
        assert not await process.traces()
        assert not await process.call("is_traced")


@each_python_once
@pytest.mark.parametrize(
    ("function", "marker"), [("rests_in_a_call", "rested"), ("fails_in_a_call", "caught")]
)
async def test_what_waits_in_a_function_that_it_has_called_stops_once_it_goes_on(
    version: str, how: str, function: str, marker: str, tmp_path: Path
) -> None:
    async with played(version, how, tmp_path, LATER) as process:
        process.begin_call(function)
        has_begun = "hasattr(__import__('sys').modules['__main__'], 'going')"
        while await process.running.evaluate(has_begun) == "False":
            await asyncio.sleep(0.01)
        await process.set(marker)
        await process.running.evaluate(f"{_STATE}.settle()")
        await process.running.evaluate("setattr(__import__('sys').modules['__main__'], 'going', False)")
        await process.running.go_on(await process.stop(marker))
        assert await process.result() == 1


@each_python_once
@pytest.mark.parametrize("traced", [False, True], ids=["compiled", "traced"])
async def test_what_nobody_catches_stops_once_in_a_thread_and_in_the_program(
    version: str, how: str, traced: bool, tmp_path: Path
) -> None:
    async with played(version, how, tmp_path, LATER) as process:
        await process.running.client.request("setExceptionBreakpoints", {"filters": ["uncaught"]})
        await process.set("rewritten")
        assert not await process.traces()
        if traced:
            await process.call("read_by_a_compiler")
        for name, argument in [("thread_ends", []), ("ends", ["the program"])]:
            process.begin_call(name, *argument)
            stop = await process.stop("raises")
            assert stop["reason"] == "exception"
            assert await process.value(stop, "error") == repr(f"{[*argument, 'a thread'][0]}!")
            await process.running.go_on(stop)
            if not argument:
                assert await process.result() is None
        events = process.running.client.events
        while (event := await asyncio.wait_for(events.get(), PATIENCE)) and event["event"] != "terminated":
            assert event["event"] != "stopped"


@each_python_once
async def test_who_compiles_a_function_gets_its_own_code_and_it_stops_all_the_same(
    version: str, how: str, tmp_path: Path
) -> None:
    async with played(version, how, tmp_path, LATER) as process:
        before = await process.call("read_by_a_compiler")
        await process.set("rewritten")
        assert not await process.traces()
        assert await process.call("read_by_a_compiler") == before
        assert await process.running.evaluate(f"{_STATE}.traced") == "True"
        process.begin_call("rewritten", 1)
        await process.running.go_on(await process.stop("rewritten"))
        assert await process.result() == 2


@each_python_once
async def test_what_is_compiled_in_stops_once_where_the_process_is_traced_for_something_else(
    version: str, how: str, tmp_path: Path
) -> None:
    async with played(version, how, tmp_path, LATER) as process:
        await process.set("rewritten", "compiled")
        await process.call("read_by_a_compiler")
        for turn in range(3):
            process.begin_call("compiled_in", turn)
            stop = await process.stop("compiled")
            assert await process.value(stop, "x") == str(turn)
            await process.running.go_on(stop)
            assert await process.result() == turn + 1


# A function that is defined in a handler: Python 3.12 and 3.13 put such code last. And one that can't be
# defined, whose code 3.10 and 3.11 keep all the same.
DEFINES = """
try:
    import no_such_module
except ImportError:
    def first():
        return "first"

def second():
    return "second"  # second

VALUE = 1  # module

def makes(flag):
    x = 1  # makes
    if flag:
        return 1
        def never():
            return "never"
    def third():
        return "third"
    return third

third = makes(False)
"""
COMES = """
def come(folder):
    sys.path.insert(0, folder)
    import defines
    return here(0)

def here(_):
    import defines
    original = sys.modules["rayside.worker.evaluated.compiled"]._breakpoints.original
    functions = defines.first, defines.second, defines.third
    return [[each() for each in functions], [original(each.__code__).co_name for each in functions]]
"""


@each_python_once
async def test_each_function_keeps_the_code_that_is_its_own(version: str, how: str, tmp_path: Path) -> None:
    file = tmp_path / "modules" / "defines.py"
    file.parent.mkdir()
    file.write_text(DEFINES)
    names = ["first", "second", "third"]

    async with played(version, how, tmp_path, COMES) as process:
        await process.set("module", "makes", file=file)
        process.begin_call("come", str(file.parent))
        for marker in ("module", "makes"):
            await process.running.go_on(await process.stop(marker, file))
        assert await process.result() == [names, names]
        await process.set("module", "second", file=file, condition="False")
        assert await process.call("here", 0) == [names, names]
        await process.set(file=file)
        assert await process.call("here", 0) == [names, names]


POSITIONAL = """
def add(a, b, /, *more, c=0, **named):
    total = a + b + c  # total
    late = total
    return late

def adds(_):
    return add(1, 2, 5, d=3)
"""


@each_python_once
async def test_a_condition_names_what_is_not_bound_yet(version: str, how: str, tmp_path: Path) -> None:
    async with played(version, how, tmp_path, POSITIONAL) as process:
        await process.set("total", condition="total == 99 or late == 99")
        assert await process.call("adds", 0) == 3
        await process.set("total", condition="a == 1 and c == 0 and more == (5,) and named['d'] == 3")
        process.begin_call("adds", 0)
        await process.running.go_on(await process.stop("total"))
        assert await process.result() == 3


# A large function takes so long to compile that the garbage collector runs meanwhile.
LARGE = "def large(x):\n" + "    x = [x, x + 1, (x,)][1] - 1\n" * 300 + "    return x  # large\n"
IMPORTS = """
class Cycle:
    def __init__(self):
        self.itself = self
    def __del__(self):
        x = 1  # finalizer

def come(folder):
    sys.path.insert(0, folder)
    Cycle()
    import large  # import
    return large.large(1)
"""


@each_python_once
async def test_nothing_stops_while_breakpoints_are_compiled_in(
    version: str, how: str, tmp_path: Path
) -> None:
    """Who resumes it needs the lock that the thread has."""
    file = tmp_path / "modules" / "large.py"
    file.parent.mkdir()
    file.write_text(LARGE)

    with started(version, how, tmp_path, IMPORTS) as running:
        process = Process(running)
        await running.attach(options={"justMyCode": False})
        await process.compile()
        await process.set("large", file=file)
        await process.set("import", "finalizer")
        process.begin_call("come", str(file.parent))
        stop = await process.stop("import")
        for _ in range(50):
            await running.go_on(stop, "stepIn")
            stop = await running.stopped()
            path = (await running.frame(stop))["source"]["path"]
            assert "bytecode" not in path and "contextlib" not in path
            if path == str(file):
                break
        assert path == str(file)
        await process.set("finalizer")
        await running.go_on(stop)
        stop = await running.stopped()
        while (await running.frame(stop))["line"] != running.line("large", file):
            await running.go_on(stop)
            stop = await running.stopped()
        await running.go_on(stop)
        assert await process.result() == 1
        await running.client.disconnect()


UNUSUAL = """
import os, tempfile
from importlib.machinery import SourceFileLoader
from pathlib import Path

cloudpickle = sys.modules["ray.cloudpickle.cloudpickle"] = types.ModuleType("ray.cloudpickle.cloudpickle")
cloudpickle._make_function = lambda code, *rest: types.FunctionType(code, *rest)
cloudpickle.CloudPickler = type("CloudPickler", (), {"_dispatch_table": {types.CodeType: None}})

def turn(x):
    return x  # turn

def load(path):
    module = types.ModuleType("loaded")
    SourceFileLoader("loaded", Path(path)).exec_module(module)
    return module.VALUE

def nameless(folder):
    sys.path.insert(0, folder)
    import nameless
    return nameless.VALUE

def relative(_):
    code = compile("def f(): return 1", "job.py", "exec").co_consts[0]
    folder, before = tempfile.mkdtemp(), os.getcwd()
    os.chdir(folder)
    os.rmdir(folder)
    try:
        return cloudpickle._make_function(code, {})()
    finally:
        os.chdir(before)

def coroutine(folder):
    import coroutine
    original = sys.modules["rayside.worker.evaluated.compiled"]._breakpoints.original
    return list(map(str, original(coroutine.waits.__code__).co_consts))
"""


@each_python_once
async def test_unusual_code_comes_as_without_a_debugger(version: str, how: str, tmp_path: Path) -> None:
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "plain.py").write_text("VALUE = 5\n")
    (folder / "nameless.py").write_text("VALUE = 6\ndel __name__\n")
    waits = folder / "coroutine.py"
    waits.write_text("import types\n@types.coroutine\ndef waits():\n    yield 7  # waits\n")

    async with played(version, how, tmp_path, UNUSUAL) as process:
        await process.set("turn")
        await process.set("waits", file=waits)
        assert await process.call("load", str(folder / "plain.py")) == 5
        assert await process.call("nameless", str(folder)) == 6
        assert await process.call("relative", 0) == 1
        assert "Place" not in str(await process.call("coroutine", str(folder)))


# --- the same as debugpy ---------------------------------------------------------------------

DIFFERENTIAL = """
import pydevd

stops = []


def recorded(self, thread, frame, event, arg, **kwargs):
    plain = {
        name: repr(value)
        for name, value in sorted(frame.f_locals.items())
        if type(value) in (int, str, float, bool) and not name.startswith("__")
    }
    stops.append([frame.f_code.co_name, frame.f_lineno, plain if frame.f_code.co_name != "<module>" else {}])
    info = thread.additional_info
    info.hit_breakpoint_ids = None
    info.pydev_state, info.pydev_step_cmd = 1, -1


pydevd.PyDB.do_wait_suspend = recorded


def run(folder, name):
    if folder not in sys.path:
        sys.path.insert(0, folder)
    sys.modules.pop(name, None)
    stops.clear()
    try:
        result = repr(importlib.import_module(name).result)
    except Exception as error:
        result = repr(error)
    return [result, list(stops), is_traced()]
"""


def without_repeats(stops: list[Any], above: int) -> list[Any]:
    """Returns stops without those that are as the one before, at lines above that."""
    pairs = zip([None, *stops], stops, strict=False)
    return [stop for before, stop in pairs if stop[1] <= above or stop != before]


@each_python
async def test_programs_stop_as_with_debugpy_at_each_of_their_lines(
    version: str, how: str, tmp_path: Path
) -> None:
    folder = tmp_path / "programs"
    folder.mkdir()
    files = {f"program{seed}": folder / f"program{seed}.py" for seed in range(PROGRAMS)}
    for seed, file in enumerate(files.values()):
        file.write_text(program(seed))

    async def run(running: Debuggee, file: Path, conditions: bool = False) -> list[Any]:
        lines = range(1, file.read_text().count("\n") + 1)
        specs: list[Message] = [{"line": line} for line in lines]
        if conditions:
            specs = [
                {"line": line, "condition": "__rayside__(1)"} for line in random.Random(0).sample(lines, 50)
            ]
        await running.client.set_breakpoints(str(file), specs)
        answer: list[Any] = json.loads(await running.ask(f"run {json.dumps([str(folder), file.stem])}"))
        await running.client.set_breakpoints(str(file), [])
        return answer

    with started(version, how, tmp_path, DIFFERENTIAL) as running:
        await running.attach()
        traced = {name: await run(running, file) for name, file in files.items()}
        assert await running.evaluate(call(compiled.begin)) == "True"
        await running.evaluate(call(evaluated.begin, "a"))
        await running.evaluate(call(reached.set_points, {1: ("LOG is None", "", False, "", 5.0)}))
        for name, file in files.items():
            result, stops, is_traced = await run(running, file)
            assert not is_traced
            assert result == traced[name][0], name
            if (version, how) == ("3.13", "monitoring"):
                # CPython 3.13.0 tells sys.monitoring nothing of the lines at which these begin.
                text = file.read_text().splitlines()
                begins = [n for n, line in enumerate(text, 1) if line.strip().startswith(("class ", "def "))]
                stops = [stop for stop in stops if stop[0] == "<module>" or stop[1] not in begins]
                expected = [
                    stop for stop in traced[name][1] if stop[0] == "<module>" or stop[1] not in begins
                ]
                assert stops == expected, name
            elif (version, how) == ("3.12", "monitoring"):
                # Above line 256 debugpy 1.8.22 stops twice after a jump back: it compares numbers by `is`.
                assert without_repeats(stops, above=256) == without_repeats(traced[name][1], above=256), name
            else:
                assert stops == traced[name][1], name
            result, stops, is_traced = await run(running, file, conditions=True)
            assert (result, stops, is_traced) == (traced[name][0], [], False), name
        assert sum(len(stops) for _, stops, _ in traced.values()) > 100 * len(files)
        await running.client.disconnect()
