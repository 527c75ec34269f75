"""Extension of IPython: `%load_ext rayside`, then `%%rayside` above a cell whose tasks are to be looked into.

The kernel is the driver. A debugger is attached to it, and to the workers of its jobs, as long as it lives. A
cell can't show a prompt while it runs, so each stop is recorded, and its task resumes.
"""

from __future__ import annotations

import argparse
import asyncio
import atexit
import contextlib
import importlib
import math
import os
import shlex
import stat
import sys
from collections.abc import Container
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rayside import run_program
from rayside.client import commands
from rayside.client.commands import Place
from rayside.client.scripted import Recorder
from rayside.client.session import AttachOptions, NoJob, Session
from rayside.dap.client import Client
from rayside.errors import InvalidArgument, RaysideError
from rayside.event_loop import Call, background_loop
from rayside.options import Parser
from rayside.plain import plain
from rayside.private_file import write_private
from rayside.program_relay import TOLD, begun, own_folder
from rayside.worker import run_driver

# The stops of the last such cell are in a variable of the notebook.
_MAGIC, _KEPT = "rayside", "rayside_stops"
# Seconds for which the kernel, and each worker, waits for the debugger, which is there at once.
_PATIENCE = 60.0


def load(shell: Any) -> None:
    """Registers the magic in this kernel, and has each `ray.init` from now on debugged. Raises UsageError."""
    kept = contextlib.ExitStack()
    atexit.register(kept.close)
    try:
        run_program.require_ray()
        if not hasattr(shell, "kernel"):
            hint = "run a program with `rayside run`, or this in a notebook"
            raise InvalidArgument("this is not the kernel of a notebook (ipykernel)", hint=hint)
        folder = kept.enter_context(own_folder())
        relay = kept.enter_context(begun(folder))
        os.environ.pop("RAY_AUTH_TOKEN", None)  # where it stays, it is there anew
        os.environ.update(relay.environment)
        call = kept.enter_context(background_loop())
        connect = partial(Client.connect, "127.0.0.1", relay.port())
        session = Session(AttachOptions(connect, relay.token), NoJob())
        cells = _Cells(shell, session, call)
        kept.callback(lambda: call(session.close()))
        run_driver.begin(folder / TOLD, _PATIENCE)
    except (RaysideError, RuntimeError) as error:  # RuntimeError: ray.init was called before
        kept.close()
        raise _usage_error(error) from None
    shell.register_magic_function(cells.run, "cell", _MAGIC)


def _usage_error(error: Exception) -> Exception:
    """Returns the same as an error of which IPython shows the text alone."""
    text = f"{error.message} ({error.hint})" if isinstance(error, RaysideError) else str(error)
    usage_error: Exception = importlib.import_module("IPython.core.error").UsageError(text)
    return usage_error


@dataclass
class _Cells:
    """The cells of one notebook that are looked into, by the debugger that is attached to its kernel."""

    shell: Any
    session: Session
    call: Call

    def __post_init__(self) -> None:
        self._recorder = Recorder(self.session, [], lambda text: None)
        self._watching = self.call(self._begin())

    async def _begin(self) -> asyncio.Future[None]:
        await self.session.start()
        return asyncio.ensure_future(self._recorder.watch(math.inf))

    def run(self, line: str, cell: str) -> None:
        """Runs a cell; shows each stop of driver, tasks and actors, and keeps it as `debug --json` has it."""
        session, recorder = self.session, self._recorder
        try:
            parsed = _parser().parse_args(shlex.split(line))
            compiler, code = self.shell.compile, self.shell.transform_cell(cell)
            file = compiler.get_code_name(cell, code, self.shell.execution_count)
            places = [_place(text, file, cell) for text in parsed.breaks]
            _write(Path(file), cell)
            for place in places:
                self.call(session.breakpoints.add(session.client, place, file))
        except SystemExit:  # --help
            return
        except (RaysideError, ValueError) as error:
            raise _usage_error(error) from None
        before, recorder.expressions = len(recorder.records), parsed.evaluate
        try:
            self.shell.run_cell(cell)
        finally:
            self.call(session.breakpoints.remove(session.client, None, file))
            self.call(recorder.finish())
        stopped = [record for record in recorder.records[before:] if record]
        self.shell.user_ns[_KEPT] = stopped
        for stop in stopped:
            _show(stop, file, self.shell.user_ns_hidden)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog=f"%%{_MAGIC}", description="Run this cell, and record where its tasks stop.")
    parser.add_argument(
        "--break",
        dest="breaks",
        action="append",
        default=[],
        metavar="[FILE:]LINE[:CONDITION]",
        help="line to stop at: of this cell, unless a file is named; may be given several times",
    )
    parser.add_argument(
        "--evaluate", action="append", default=[], metavar="EXPR", help="expression to evaluate at each stop"
    )
    return parser


def _write(file: Path, cell: str) -> None:
    """Writes the cell where its code says that it is from, as ipykernel's own debugger does, for its lines.

    The folder is in one where everybody may write: another user's is left alone.
    """
    with contextlib.suppress(OSError):
        file.parent.mkdir(mode=0o700, exist_ok=True)
        found = file.parent.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
            write_private(file, cell)


def _place(text: str, file: str, cell: str) -> Place:
    number, _, condition = text.partition(":")
    if not number.isdecimal():
        return commands.break_option(text)
    if not 1 <= int(number) <= len(cell.splitlines()):
        raise InvalidArgument(
            f"this cell has no line {number}", hint=f"the line of %%{_MAGIC} does not count"
        )
    commands.check_condition(condition or None)
    return Place(file, int(number), condition or None)


def _show(stop: dict[str, Any], file: str, hidden: Container[str]) -> None:
    where = "line" if stop["file"] == file else f"{stop['file']}, line"
    lines = [f"{stop['task']} stopped in {stop['function']}, {where} {stop['line']} ({stop['reason']})"]
    own = {name: value for name, value in stop["locals"].items() if name not in hidden and name[:1] != "_"}
    lines += [f"    {name} = {value}" for name, value in {**own, **stop["evaluated"]}.items()]
    sys.stdout.write(plain("\n".join(lines)) + "\n")
