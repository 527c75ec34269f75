"""Command line of the debugger, the program `rayside`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from rayside import __version__
from rayside.cli_commands import COMMANDS
from rayside.console import PACKAGE, Console
from rayside.errors import Interrupted, InvalidArgument, RaysideError
from rayside.options import Parser
from rayside.signals import signals_noticed, termination_interrupts

_EDITOR = """\
In VS Code, attach the Python debugger (--listen). Ray Breakpoints, the extension, lists paused tasks: in a
clone of Rayside ./invokew vsix makes it, and code --install-extension ray-breakpoints.vsix installs it.
"""


_AFTER_CTRL_C = {
    "run": "the program was ended; run it again",
    "connect": "run it again to go on; rayside disconnect removes what it has begun",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command that was typed; returns its exit code."""
    words = [*(sys.argv[1:] if arguments is None else arguments)]
    console = Console(as_json="--json" in words, program=PACKAGE)
    name = ""
    try:
        if sys.platform == "win32":
            raise InvalidArgument("Windows can't run this", hint="use WSL 2, where it runs as on Linux")
        given, unknown = parser().parse_known_args(words)
        if unknown:
            of = f"rayside {given.command}"
            raise InvalidArgument(
                f"unrecognized arguments: {' '.join(unknown)}", hint=f"{of} --help shows the usage"
            )
        name = given.command
        console = Console(getattr(given, "json", False), program=PACKAGE)
        command = next(each for each in COMMANDS if each.name == name)
        if name == "run":  # run_program handles signals itself.
            return command.run(given, console) or 0
        termination_interrupts()
        with signals_noticed():
            return command.run(given, console) or 0
    except RaysideError as error:
        console.error(error)
        return error.exit_code
    except KeyboardInterrupt:
        interrupted = Interrupted(
            "interrupted", hint=_AFTER_CTRL_C.get(name, "run the command again to go on")
        )
        console.error(interrupted)
        return interrupted.exit_code
    except BrokenPipeError:  # The reader of the output, such as `head`, has closed the pipe.
        sys.stderr.close()
        return 0


def parser() -> Parser:
    """Returns the parser of the command line."""
    top = Parser(prog="rayside", description="A debugger for Ray.", epilog=_EDITOR, allow_abbrev=False)
    top.add_argument("--version", action="version", version=f"rayside {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        own = commands.add_parser(
            command.name,
            help=command.help,
            description=command.description or f"{command.help[0].upper()}{command.help[1:]}.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
            usage=command.usage,
        )
        own.take(command.all_options)
        for argument in command.positional:
            nargs = "?" if argument.is_optional else None
            own.add_argument(argument.name, metavar=argument.metavar, help=argument.help, nargs=nargs)
        if command.name == "run":
            own.add_argument(
                "-m", dest="is_module", action="store_true", help="the program is a module, as for python -m"
            )
            own.add_argument(
                "program",
                nargs=argparse.REMAINDER,
                metavar="SCRIPT",
                help="the program, and its own arguments",
            )
    return top


if __name__ == "__main__":
    sys.exit(main())
