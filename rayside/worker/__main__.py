"""Runs a program whose driver and workers can be debugged: `python -m rayside.worker program.py`."""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path

from .debug_config import LONGEST_WAIT
from .driver import debug


def main() -> None:
    """Runs the program that the arguments name, as Python itself does."""
    parser = argparse.ArgumentParser(
        prog="python -m rayside.worker",
        description="Run a Ray program; its driver, tasks and actors open a debugger, and wait for one.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--attach-timeout", type=float, default=60.0, metavar="S", help="seconds that they wait (default: 60)"
    )
    parser.add_argument("--post-mortem", action="store_true", help="a task that fails stops where it failed")
    parser.add_argument("-m", action="store_true", dest="module", help="PROGRAM is the name of a module")
    parser.add_argument("program", metavar="PROGRAM")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...")
    options = parser.parse_args()
    if not 0 <= options.attach_timeout <= LONGEST_WAIT:
        parser.error(f"--attach-timeout takes seconds, from 0 (don't wait) to {LONGEST_WAIT}")
    if not options.module and not Path(options.program).is_file():
        parser.error(f"there is no file {options.program}")
    debug(options.attach_timeout, post_mortem=options.post_mortem)
    sys.argv = [options.program, *options.arguments]
    if options.module:
        runpy.run_module(options.program, run_name="__main__", alter_sys=True)
    else:
        # Python looks for a program's modules in its own folder, and not in the current one, as with -m.
        sys.path[:1] = [str(Path(options.program).resolve().parent)]
        runpy.run_path(options.program, run_name="__main__")


main()
