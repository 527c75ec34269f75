"""IPython extension: `%load_ext rayside`, then `%%rayside` above a cell to debug its tasks.

The kernel is the driver. A debugger stays attached to it, and to the workers of its jobs, until it ends. A
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

# The magic, and the notebook's variable with the stops of the last debugged cell.
_MAGIC, _KEPT = "rayside", "rayside_stops"
# Timeout in seconds of the kernel and of each worker for the debugger, which attaches at once.
_PATIENCE = 60.0


def load(shell: Any) -> None:
    """Registers the magic in this kernel; each later `ray.init` is debugged. Raises UsageError."""
    kept = contextlib.ExitStack()
    atexit.register(kept.close)
    try:
        run_program.require_ray()
        if not hasattr(shell, "kernel"):
            hint = "run a program with `rayside run`, or this in a notebook"
            raise InvalidArgument("this is not the kernel of a notebook (ipykernel)", hint=hint)
        folder = kept.enter_context(own_folder())
        relay = kept.enter_context(begun(folder))
        os.environ.pop("RAY_AUTH_TOKEN", None)  # If it is to stay, `relay.environment` contains it.
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
    """Returns the error as IPython's UsageError, which is shown without a traceback."""
    text = f"{error.message} ({error.hint})" if isinstance(error, RaysideError) else str(error)
    usage_error: Exception = importlib.import_module("IPython.core.error").UsageError(text)
    return usage_error


@dataclass
class _Cells:
    """Debugged cells of one notebook, whose kernel the debugger is attached to."""

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
        """Runs a cell; shows each stop of driver, tasks and actors, and keeps it as in `debug --json`."""
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
    """Writes the cell to the file that its code names, as ipykernel's debugger does, to show its lines.

    The folder lies in a world-writable one: if it belongs to another user, nothing is written.
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
