"""Runs a Ray program under the debugger: `rayside run`.

Three processes: this one, the program, and a relay for it. The program and the relay each hold a pipe from
this process, and end when it ends, even if it is killed.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import math
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.machinery import PathFinder
from pathlib import Path
from threading import Event
from typing import Any

from rayside.client import terminal
from rayside.client.commands import Place
from rayside.client.events import JobState
from rayside.client.scripted import Interruption, run_sync
from rayside.client.session import AttachOptions
from rayside.console import Console
from rayside.dap.client import Client
from rayside.errors import INTERRUPTED, InvalidArgument, MissingProgram
from rayside.options import MOST_STOPS
from rayside.program_relay import TOLD, ProgramRelay, begun, command, own_folder
from rayside.ray import authentication
from rayside.signals import signals_noticed
from rayside.versions import FIRST_RAY_WITH_TOKENS, OLDEST_RAY, is_before
from rayside.worker.debug_config import LONGEST_WAIT
from rayside.worker.run_driver import TOKEN

# Modules of `ray[default]` that `ray` alone lacks: without them no dashboard runs, which lists workers.
_OF_DASHBOARD = ("aiohttp", "aiohttp_cors", "opencensus", "prometheus_client")
_INSTALL = "{} -m pip install 'ray[default]'"
_IN_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
# Timeouts in seconds: of each process for the terminal debugger, which attaches at once; for the program to
# end before it is asked again; of one check whether it has ended.
_ATTACH, _ENDING, _LOOK = 60.0, 8.0, 0.5
_TIMES = 4  # waits for the end, before the program is killed


@dataclass(frozen=True)
class Program:
    """Program of `rayside run`: a script, or a module with -m, and how to debug it.

    Attributes:
        breaks: breakpoints to set before the program starts.
        evaluate: expressions to evaluate at each stop, for the scripted debugger.
        post_mortem: whether an uncaught exception in a task stops where it was raised.
        listen: port on 127.0.0.1 for an editor, in place of the terminal debugger; 0 for a free one.
        timeout: seconds without a stop after which the scripted debugger detaches.
        stops: number of stops after which the scripted debugger detaches.
    """

    name: str
    arguments: Sequence[str] = ()
    is_module: bool = False
    breaks: Sequence[Place] = ()
    evaluate: Sequence[str] = ()
    post_mortem: bool = False
    listen: int | None = None
    timeout: float = math.inf
    stops: int = MOST_STOPS
    # As with `python -P`: neither the script's folder nor the current one is on sys.path.
    safe_path: bool = False


def run(program: Program, console: Console) -> int:
    """Runs the program to its end; returns its exit code, or 130 after Ctrl-C. Raises RaysideError."""
    _check(program)
    if not _asks_for_token():
        console.event(
            "this Ray asks for no token: who reaches this machine over the network, or has an account on it,"
            " can debug its tasks, as they can run programs in it (docs/run.md)"
        )
    with own_folder() as folder, signals_noticed(signal.SIGTERM, signal.SIGHUP):
        return _Run(program, console, folder).to_the_end()


@dataclass(frozen=True)
class _Run:
    program: Program
    console: Console
    folder: Path
    asked: Event = field(default_factory=Event)  # set when the program is asked to end

    def to_the_end(self) -> int:
        with begun(self.folder, self.program.listen or 0) as relay, self._started(relay) as process:
            port = relay.port()
            if self.program.listen is not None:
                return self._with_editor(process, port)
            options = AttachOptions(
                connect=partial(Client.connect, "127.0.0.1", port),
                token=relay.token,
                breakpoints=self.program.breaks,
            )
            if self._is_scripted:
                return self._scripted(process, options)
            return self._in_terminal(process, options)

    # --- the debuggers -------------------------------------------------------------------

    def _in_terminal(self, process: subprocess.Popen[Any], options: AttachOptions) -> int:
        if not (self.program.breaks or self.program.post_mortem):
            self.console.event("no --break: Ctrl-C, then `break FILE:LINE`, sets a breakpoint while it runs")
        history = self.folder / "history"
        end = partial(self._ask_to_end, process)
        left = terminal.run(options, Watch(process), self.console, timeout=math.inf, history=history, end=end)
        return left or self._code(process)

    def _scripted(self, process: subprocess.Popen[Any], options: AttachOptions) -> int:
        program, code = self.program, None
        try:
            document = run_sync(
                options,
                Watch(process),
                evaluate=program.evaluate,
                timeout=program.timeout,
                most=program.stops,
                on_event=self.console.event,
            )
            with contextlib.suppress(KeyboardInterrupt, SystemExit):
                code = self._code(process)
        except Interruption as interruption:
            document = interruption.document
        if code is not None and document["job"]["status"] == "RUNNING":
            document["job"]["status"] = _status(code)
        self.console.document(document)
        return INTERRUPTED if code is None else code

    def _with_editor(self, process: subprocess.Popen[Any], port: int) -> int:
        self.console.event(f"the program waits for an editor: attach its Python debugger to 127.0.0.1:{port}")
        self.console.event(f"  it asks for a token: cat {shlex.quote(str(self.folder / TOKEN))}")
        try:
            return self._code(process)
        except KeyboardInterrupt:
            return INTERRUPTED

    @staticmethod
    def _code(process: subprocess.Popen[Any]) -> int:
        """Waits for the program's end; returns the exit code that a shell would show."""
        code = process.wait()
        return code if code >= 0 else 128 - code

    # --- the processes -------------------------------------------------------------------

    @property
    def _is_scripted(self) -> bool:
        return self.console.as_json or bool(self.program.evaluate)

    @contextlib.contextmanager
    def _started(self, relay: ProgramRelay) -> Iterator[subprocess.Popen[Any]]:
        """Starts the program; on exit from the context, ends it."""
        program = self.program
        terminal = program.listen is None and not self._is_scripted
        alive, held = os.pipe()
        patience = _ATTACH if program.listen is None else LONGEST_WAIT
        words = [*command("rayside.worker"), "--told", str(self.folder / TOLD), "--alive", str(alive)]
        words += ["--attach-timeout", f"{patience:g}"]
        words += ["--safe-path"] * (program.safe_path or getattr(sys.flags, "safe_path", False))
        words += ["--post-mortem"] * program.post_mortem + ["-m"] * program.is_module
        process = subprocess.Popen(
            [*words, program.name, *program.arguments],
            env=relay.environment,
            # The debugger uses the terminal, and Ctrl-C.
            stdin=subprocess.DEVNULL if terminal else None,
            stdout=sys.stderr if self.console.as_json else None,
            start_new_session=terminal,
            pass_fds=[alive],
        )
        os.close(alive)
        try:
            yield process
        finally:
            self._ask_to_end(process)
            with contextlib.suppress(KeyboardInterrupt):  # Another Ctrl-C kills the program.
                for _ in range(_TIMES):
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(_ENDING)
                        break
                    # Python ignores a KeyboardInterrupt in some places, such as at-fork callbacks.
                    process.send_signal(signal.SIGINT)
            process.kill()
            process.wait()
            os.close(held)

    def _ask_to_end(self, process: subprocess.Popen[Any]) -> None:
        """Sends SIGINT as Ctrl-C does, once: a second one would interrupt the program's cleanup."""
        if not self.asked.is_set() and process.poll() is None:
            self.asked.set()
            self.console.event("the program is ended")
            process.send_signal(signal.SIGINT)


@dataclass(frozen=True)
class Watch:
    """State of the running program, in place of a job's."""

    process: subprocess.Popen[Any]

    def job(self) -> JobState:
        """Returns the program's state, after a short wait if it runs."""
        try:
            code = self.process.wait(_LOOK)
        except subprocess.TimeoutExpired:
            return JobState("", "RUNNING", ended=False)
        return JobState("", _status(code), ended=True)


def _status(code: int) -> str:
    return "FAILED" if code else "SUCCEEDED"


# --- what can't be run -------------------------------------------------------------------


def _check(program: Program) -> None:
    """Raises InvalidArgument or MissingProgram if the program can't be run here."""
    if _IN_JOB in os.environ:
        raise InvalidArgument(
            "this is a job of Ray already: `rayside run` is for a program that nobody has submitted",
            hint="submit the program itself: ./invokew submit --debug",
        )
    if not program.is_module and not Path(program.name).is_file():
        raise InvalidArgument(f"there is no file {program.name}", hint="name it from the current folder")
    require_ray()
    if program.is_module and not _is_module(program.name):
        raise InvalidArgument(f"there is no module {program.name}", hint="name it as for `python -m`")
    if os.environ.get("RAY_ADDRESS", "").startswith("ray://"):
        raise InvalidArgument(
            "RAY_ADDRESS leads to a Ray Client server (ray://): the driver would not run in the cluster",
            hint="submit the program there: ./invokew submit --debug",
        )


def _is_module(name: str) -> bool:
    """Returns whether the module's top-level package or module exists, without importing it."""
    top = name.partition(".")[0]
    return (
        top in sys.builtin_module_names or PathFinder.find_spec(top, [str(Path.cwd()), *sys.path]) is not None
    )


def require_ray() -> None:
    """Raises MissingProgram unless this Python has a supported Ray with a dashboard."""
    install = _INSTALL.format(sys.executable)
    if importlib.util.find_spec("ray") is None:
        raise MissingProgram(f"this Python ({sys.executable}) has no Ray", hint=install)
    version = _version()
    if is_before(version, OLDEST_RAY):
        oldest = OLDEST_RAY.rpartition(".")[0]
        raise MissingProgram(f"Ray {version} is older than {oldest}", hint=f"{install[:-1]}>={oldest}'")
    if any(importlib.util.find_spec(name) is None for name in _OF_DASHBOARD):
        raise MissingProgram("this Ray has no dashboard, which the debugger asks for workers", hint=install)


def _asks_for_token() -> bool:
    """Returns whether a Ray cluster that the program starts requires a token."""
    asks = authentication.mode_here() in ("", authentication.TOKEN)
    return asks and not is_before(_version(), FIRST_RAY_WITH_TOKENS)


def _version() -> str:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version("ray")
    return ""
