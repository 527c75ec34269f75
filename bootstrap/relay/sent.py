"""Makes expressions that run our functions inside a debuggee, in DAP's `evaluate` or as a condition."""

from __future__ import annotations

from pathlib import Path

from bootstrap import redaction
from bootstrap.hook import evaluated


class Sent:
    """Holds one of our modules, whose text the relay sends to debuggees.

    Args:
        name: the module's name in the debuggee's `sys.modules`: without a module, `evaluate` would leave the
            names in the user's __main__.
        file: has its text.
    """

    def __init__(self, name: str, file: Path) -> None:
        self._name, self._text = name, file.read_text()

    def first_call(self, function: str) -> str:
        """Calls a function without arguments; makes the module first where the debuggee does not have it."""
        return self._expression(
            f"module = sys.modules.get({self._name!r})\n"
            f"if module is None:\n{self._module_code()}"
            f"module.{function}()\n"
        )

    def anew(self) -> str:
        """Makes the module anew, also where the debuggee has it: nothing is left of what it knew."""
        return self._expression(f"if True:\n{self._module_code()}")

    def call(self, function: str, *arguments: object) -> str:
        """Calls a function with literals; the debuggee has to have the module."""
        literals = ", ".join(map(repr, arguments))
        return f"__import__('sys').modules[{self._name!r}].{function}({literals})"

    def value(self, function: str, *arguments: object) -> str:
        """Evaluates to what a call with literals returns, and leaves nothing in the debuggee."""
        literals = ", ".join(map(repr, arguments))
        execution = f"exec(compile({self._text!r}, '<{self._name}>', 'exec'), names)"
        return f"(lambda names: ({execution}, names[{function!r}]({literals}))[1])({{}})"

    def _module_code(self) -> str:
        return (
            f"    module = sys.modules[{self._name!r}] = types.ModuleType({self._name!r})\n"
            # pydevd takes code with such a file name for a part of Python: nobody steps into it.
            f"    exec(compile({self._text!r}, '<frozen {self._name}>', 'exec'), module.__dict__)\n"
        )

    @staticmethod
    def _expression(code: str) -> str:
        return f"exec({'import sys, types' + chr(10) + code!r}, {{}})"


_FOLDER = Path(evaluated.__file__).parent
REACHED = Sent("_rayside_reached", _FOLDER / "reached.py")
FUNCTIONS = Sent("_rayside_functions", _FOLDER / "functions.py")
BY_VALUE = Sent("_rayside_by_value", _FOLDER / "by_value.py")
PRINTS = Sent("_rayside_prints", _FOLDER / "prints.py")
EXCEPTIONS = Sent("_rayside_exceptions", _FOLDER / "exceptions.py")
LINE_TABLE = Sent("_rayside_line_table", _FOLDER / "line_table.py")
INTERRUPTION = Sent("_rayside_interruption", _FOLDER / "interruption.py")
REDACTION = Sent("_rayside_redaction", Path(redaction.__file__))
SECRET_VALUES = Sent("_rayside_secret_values", _FOLDER / "secret_values.py")
