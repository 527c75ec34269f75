"""Command line of the debugger: `rayside run`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from rayside import __version__
from rayside.console import Console
from rayside.errors import Interrupted, InvalidArgument, RaysideError
from rayside.options import Parser, seconds

_RUN = """\
Run a Ray program under the debugger: pdb for Ray. Its driver, its tasks and its actors stop.

examples:
  rayside run --break my_task.py:12 my_program.py --its-option 3
  rayside run --break my_task.py:12:'x > 3' -m my_package.train
  rayside run --post-mortem my_program.py          # an exception stops where it was raised
  rayside run --listen 5678 my_program.py          # an editor attaches, in place of the terminal
  rayside run --json --evaluate x --break my_task.py:12 my_program.py

The program runs with this Python and its Ray: one that its ray.init() starts, or the one of RAY_ADDRESS.
When it ends, nothing of the debugger stays. `quit` lets it run on; Ctrl-C at the prompt ends it.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command that was typed; returns its exit code."""
    words = [*(sys.argv[1:] if arguments is None else arguments)]
    console = Console(as_json="--json" in words)
    try:
        if sys.platform == "win32":
            raise InvalidArgument("Windows can't run this", hint="use WSL 2, where it runs as on Linux")
        options = _parser().parse_args(words)
        console = Console(as_json=options.json)
        return _run(options, console)
    except RaysideError as error:
        console.error(error)
        return error.exit_code
    except KeyboardInterrupt:
        interrupted = Interrupted("interrupted", hint="the program was ended; run it again")
        console.error(interrupted)
        return interrupted.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="rayside", description="A debugger for Ray.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"rayside {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser(
        "run",
        help="run a Ray program under the debugger",
        description=_RUN,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        usage="rayside run [OPTIONS] [-m MODULE | SCRIPT] [ARGUMENTS...]",
    )
    run.add_argument(
        "--break",
        dest="breaks",
        action="append",
        default=[],
        metavar="FILE:LINE[:CONDITION]",
        help="line to stop at; may be given several times",
    )
    run.add_argument(
        "--post-mortem",
        action="store_true",
        help="an exception stops where it was raised, if nothing catches it",
    )
    run.add_argument(
        "--listen",
        type=int,
        metavar="PORT",
        help="port for an editor, in place of the terminal; 0 takes a free one",
    )
    run.add_argument(
        "--evaluate",
        action="append",
        default=[],
        metavar="EXPR",
        help="scripted, as --json: expression to evaluate at each stop; may be given several times",
    )
    run.add_argument(
        "--timeout",
        metavar="S",
        help="scripted: seconds without a stop after which the program runs on alone",
    )
    run.add_argument(
        "--json", action="store_true", help="scripted: record each stop, let it go on, print one document"
    )
    run.add_argument(
        "-m", dest="is_module", action="store_true", help="the program is a module, as for python -m"
    )
    run.add_argument(
        "program", nargs=argparse.REMAINDER, metavar="SCRIPT", help="the program, and its own arguments"
    )
    return parser


def _run(options: argparse.Namespace, console: Console) -> int:
    from math import inf

    from rayside import run_program
    from rayside.client.commands import break_option

    if not options.program:
        raise InvalidArgument("no program is named", hint="as in: rayside run my_program.py")
    if options.listen is not None:
        if not 0 <= options.listen <= 65535:
            raise InvalidArgument(
                f"--listen {options.listen} is no port",
                hint="choose one from 1024 to 65535, or 0 for a free one",
            )
        if options.breaks or options.evaluate or options.json:
            raise InvalidArgument(
                "--listen leaves breakpoints and values to the editor", hint="leave out the one or the other"
            )
    hint = "give it in seconds, above 0"
    timeout = seconds("--timeout", options.timeout or inf, may_be_zero=False, hint=hint)
    return run_program.run(
        run_program.Program(
            *(options.program[0], options.program[1:]),
            is_module=options.is_module,
            breaks=[break_option(text) for text in options.breaks],
            evaluate=options.evaluate,
            post_mortem=options.post_mortem,
            listen=options.listen,
            timeout=timeout,
        ),
        console,
    )


if __name__ == "__main__":
    sys.exit(main())
