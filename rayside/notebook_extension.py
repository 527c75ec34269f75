"""Extension of IPython: `%load_ext rayside`, then `%%rayside` above a cell whose tasks are to be looked into.

The kernel is the driver. A cell can't ask at a prompt while it runs, so each stop is recorded, and goes on.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import math
import os
import shlex
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NoReturn

from rayside import run_program
from rayside.client import commands
from rayside.client.commands import Place
from rayside.client.events import JobState
from rayside.client.scripted import run_sync
from rayside.client.session import AttachOptions
from rayside.dap.client import Client
from rayside.errors import InvalidArgument, RaysideError
from rayside.plain import plain
from rayside.program_relay import TOLD, begun, own_folder
from rayside.worker import run_driver

_MAGIC = "rayside"
# Seconds for the debugger to be there, and for one look at whether the cell has ended.
_PATIENCE, _LOOK = 60.0, 0.5


class UsageError(Exception):
    """What was typed can't be done; IPython shows the text."""


def load(shell: Any) -> None:
    """Registers the magic in this kernel, and has each `ray.init` from now on debugged. Raises UsageError."""
    kept = contextlib.ExitStack()
    atexit.register(kept.close)
    try:
        run_program.require_ray()
        folder = kept.enter_context(own_folder())
        relay = kept.enter_context(begun(folder))
        os.environ.pop("RAY_AUTH_TOKEN", None)  # where it stays, it is there anew
        os.environ.update(relay.environment)
        run_driver.begin(folder / TOLD, 0.0)
        connect = partial(Client.connect, "127.0.0.1", relay.port())
    except (RaysideError, RuntimeError) as error:  # RuntimeError: ray.init was called before
        kept.close()
        raise UsageError(_told(error)) from None
    magic = partial(_run, shell, AttachOptions(connect, relay.token))
    shell.register_magic_function(magic, "cell", _MAGIC)


def _told(error: Exception) -> str:
    return f"{error.message} ({error.hint})" if isinstance(error, RaysideError) else str(error)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InvalidArgument(message, hint=f"%%{_MAGIC} --help says how it is typed")


@dataclass
class _Cell:
    """The cell that is watched, in place of a job."""

    attached: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)

    def job(self) -> JobState:
        self.attached.set()  # it is asked from then on
        ended = self.ended.wait(_LOOK)
        return JobState("", "ended" if ended else "RUNNING", ended=ended)


def _run(shell: Any, options: AttachOptions, line: str, cell: str) -> list[dict[str, Any]] | None:
    """Runs a cell; shows each stop of driver, tasks and actors, and returns them as `debug --json` does."""
    try:
        parsed = _parser().parse_args(shlex.split(line))
        file = shell.compile.get_code_name(cell, shell.transform_cell(cell), shell.execution_count)
        breaks = [_place(text, file, cell) for text in parsed.breaks]
    except SystemExit:  # --help
        return None
    except (RaysideError, ValueError) as error:
        raise UsageError(_told(error)) from None
    watched, events = _Cell(), list[str]()
    with ThreadPoolExecutor(1) as pool:
        record = partial(run_sync, evaluate=parsed.evaluate, timeout=math.inf, on_event=events.append)
        recording = pool.submit(record, replace(options, breakpoints=breaks), watched)
        recording.add_done_callback(lambda _: watched.attached.set())
        try:
            watched.attached.wait(_PATIENCE)
            shell.run_cell(cell)
        finally:
            watched.ended.set()
        stopped: list[dict[str, Any]] = recording.result()["stopped"]
    for stop in stopped:
        _show(stop, file)
    return stopped


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog=f"%%{_MAGIC}", description="Run this cell, and record where its tasks stop.")
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


def _show(stop: dict[str, Any], file: str) -> None:
    where = "line" if stop["file"] == file else f"{stop['file']}, line"
    lines = [f"{stop['task']} stopped in {stop['function']}, {where} {stop['line']} ({stop['reason']})"]
    lines += [f"    {name} = {value}" for name, value in {**stop["locals"], **stop["evaluated"]}.items()]
    sys.stdout.write(plain("\n".join(lines)) + "\n")
