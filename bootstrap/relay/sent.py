"""Makes expressions that run our functions inside a debuggee, in DAP's `evaluate` or as a condition."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from bootstrap import redaction
from bootstrap.hook import evaluated, rayside_hook
from bootstrap.hook.evaluated import scope


class Sent:
    """Holds one of our modules, whose text the relay sends to debuggees.

    Args:
        name: the module's name in the debuggee's `sys.modules`: without a module, `evaluate` would leave the
            names in the user's __main__.
        file: has its text.
        is_kept: whether it keeps what it knows from one connection to the next.
    """

    def __init__(self, name: str, file: Path, *, is_kept: bool = False) -> None:
        self._name, self._text = name, file.read_text()
        self._making = (
            f"    module = sys.modules[{name!r}] = types.ModuleType({name!r})\n"
            # pydevd takes code with such a file name for a part of Python: nobody steps into it.
            f"    exec(compile({self._text!r}, '<frozen {name}>', 'exec'), module.__dict__)\n"
        )
        # This one is made once for all: it keeps what it knows from one connection to the next.
        self._once = f"module = sys.modules.get({name!r})\nif module is None:\n{self._making}"
        # And this one for each connection: who waited too long sends it again, and what was late runs, too.
        self._for_connection = repr(
            "import sys, types\n"
            f"module = sys.modules.get({name!r})\n"
            "if getattr(module, 'rayside_connection', None) != connection:\n"
            f"{self._making}"
            "    module.rayside_connection = connection\n"
        )
        # Made once for all, as a thousand debuggees get it.
        self._kept = self._expression(self._once) if is_kept else ""
        self._anew = self._expression(f"if True:\n{self._making}")  # once: a thousand debuggees get it

    def first_call(self, function: str, needed: Iterable[Sent] = ()) -> str:
        """Calls a function without arguments; makes the modules first that the debuggee does not have."""
        makings = "".join(module._once for module in [*needed, self])
        return self._expression(f"{makings}module.{function}()\n")

    def first_value(self, function: str, needed: Iterable[Sent]) -> str:
        """Evaluates to what a function returns; makes the modules first that the debuggee does not have."""
        makings = "".join(module._once for module in [*needed, self])
        return f"({self._expression(makings)}, {self.call(function)})[1]"

    def anew(self) -> str:
        """Makes the module anew, also where the debuggee has it: nothing is left of what it knew."""
        return self._anew

    def for_connection(self, connection: str) -> str:
        """Makes the module anew for a connection of that name, and does nothing once that has it."""
        if self._kept:
            return self._kept
        return f"exec({self._for_connection}, {{'connection': {connection!r}}})"

    def call(self, function: str, *arguments: object) -> str:
        """Calls a function with literals; the debuggee has to have the module."""
        literals = ", ".join(map(repr, arguments))
        return f"__import__('sys').modules[{self._name!r}].{function}({literals})"

    def value(self, function: str, *arguments: object) -> str:
        """Evaluates to what a call with literals returns, and leaves nothing in the debuggee."""
        literals = ", ".join(map(repr, arguments))
        execution = f"exec(compile({self._text!r}, '<{self._name}>', 'exec'), names)"
        names = {"__name__": self._name}
        return f"(lambda names: ({execution}, names[{function!r}]({literals}))[1])({names!r})"

    @staticmethod
    def _expression(code: str) -> str:
        return f"exec({'import sys, types' + chr(10) + code!r}, {{}})"


def made_of(modules: Iterable[Sent], connection: str) -> str:
    """Returns an expression that makes modules for a connection; its value is an empty list."""
    makings = ", ".join(module.for_connection(connection) for module in modules)
    return f"[making for making in [{makings}] if making]"


_FOLDER = Path(evaluated.__file__).parent
REACHED = Sent("_rayside_reached", _FOLDER / "reached.py")
SCOPE = Sent(scope.MODULE, _FOLDER / "scope.py")
FUNCTIONS = Sent("_rayside_functions", _FOLDER / "functions.py")
BY_VALUE = Sent("_rayside_by_value", _FOLDER / "by_value.py")
TELLING = Sent("_rayside_telling", _FOLDER / "telling.py")
PRINTS = Sent("_rayside_prints", _FOLDER / "prints.py")
EXCEPTIONS = Sent("_rayside_exceptions", _FOLDER / "exceptions.py")
LINE_TABLE = Sent("_rayside_line_table", _FOLDER / "line_table.py")
OWN_FILES = Sent("_rayside_own_files", _FOLDER / "own_files.py")
INTERRUPTION = Sent("_rayside_interruption", _FOLDER / "interruption.py")
REDACTION = Sent("_rayside_redaction", Path(redaction.__file__))
STACKS = Sent("_rayside_stacks", _FOLDER / "stacks.py")
SHOWN = Sent("_rayside_shown", _FOLDER / "shown.py")
ARRAYS = Sent("_rayside_arrays", _FOLDER / "arrays.py")
SUMMARY = Sent("_rayside_summary", _FOLDER / "summary.py")
TRACING = Sent("_rayside_tracing", Path(rayside_hook.__file__).with_name("tracing.py"))
WORKAROUNDS = Sent("_rayside_workarounds", Path(rayside_hook.__file__).with_name("workarounds.py"))
FLOW = Sent("_rayside_flow", _FOLDER / "flow.py")
INSERTED = Sent("_rayside_inserted", _FOLDER / "inserted.py")
CONDITIONS = Sent("_rayside_conditions", _FOLDER / "conditions.py")
OBJECTS = Sent("_rayside_objects", _FOLDER / "objects.py", is_kept=True)
ENTERING = Sent("_rayside_entering", _FOLDER / "entering.py")
STOPPING = Sent("_rayside_stopping", _FOLDER / "stopping.py")
UNCAUGHT = Sent("_rayside_uncaught", _FOLDER / "uncaught.py")
MADE = Sent("_rayside_made", _FOLDER / "made.py")
COMPILED = Sent("_rayside_compiled", _FOLDER / "compiled.py")
SECRET_VALUES = Sent("_rayside_secret_values", _FOLDER / "secret_values.py")
REMOTE_CALLS = Sent("_rayside_remote_calls", _FOLDER / "remote_calls.py")
TASK_STARTS = Sent("_rayside_task_starts", _FOLDER / "task_starts.py")
