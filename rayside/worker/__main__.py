"""Command that runs a program whose driver and workers can be debugged: `python -m rayside.worker app.py`."""

from __future__ import annotations

import argparse
import runpy
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType

from . import run_driver
from .debug_config import LONGEST_WAIT
from .driver import debug

_OWN = {"<string>", "<frozen runpy>", runpy.__file__, __file__}


def _without_own_frames(
    shown: Callable[..., None],
    quiet: bool,
    kind: type[BaseException],
    error: BaseException,
    trace: TracebackType | None,
) -> None:
    """Shows an uncaught exception with the program's own frames alone; Ctrl-C not, if `quiet`."""
    if quiet and kind is KeyboardInterrupt:
        return
    while trace is not None and trace.tb_frame.f_code.co_filename in _OWN:
        trace = trace.tb_next
    run_driver.stop_at(kind, error, trace)
    shown(kind, error.with_traceback(trace), trace)


def main() -> None:
    """Runs the program in the arguments, as Python itself does."""
    parser = argparse.ArgumentParser(
        prog="python -m rayside.worker",
        description="Run a Ray program; its driver, tasks and actors open a debugger, and wait for one.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--attach-timeout", type=float, default=60.0, metavar="S", help="seconds that they wait (default: 60)"
    )
    parser.add_argument("--post-mortem", action="store_true", help="a task that fails stops where it failed")
    # Options that `rayside run` passes: see run_driver.py.
    parser.add_argument("--told", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--alive", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--safe-path", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("-m", action="store_true", dest="module", help="PROGRAM is the name of a module")
    parser.add_argument("program", metavar="PROGRAM")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...")
    options = parser.parse_args()
    if not 0 <= options.attach_timeout <= LONGEST_WAIT:
        parser.error(f"--attach-timeout takes seconds, from 0 (don't wait) to {LONGEST_WAIT}")
    if not options.module and not Path(options.program).is_file():
        parser.error(f"there is no file {options.program}")
    if options.told:
        how = {"post_mortem": options.post_mortem, "alive": options.alive}
        try:
            run_driver.begin(options.told, options.attach_timeout, **how)
        except KeyboardInterrupt:
            sys.exit(130)
    else:
        debug(options.attach_timeout, post_mortem=options.post_mortem)
    sys.argv = [options.program, *options.arguments]
    sys.excepthook = partial(_without_own_frames, sys.excepthook, bool(options.told))
    # Python imports a program's modules from the program's folder, or with -m from the current one.
    folder = Path.cwd() if options.module else Path(options.program).resolve().parent
    # Replaces the first entry, which led to this module: the current folder, or `rayside run`'s package path.
    sys.path[:1] = [] if options.safe_path else [str(folder)]
    if options.module:
        runpy.run_module(options.program, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(options.program, run_name="__main__")


main()
