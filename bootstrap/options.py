"""Has the options that verbs share with the workspace's `submit`, and checks what was typed as a value."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from bootstrap.errors import InvalidArgument


@dataclass(frozen=True)
class Option:
    """Describes an option, as in `--working-dir D`; one without a `metavar` is a flag."""

    name: str
    help: str
    metavar: str = ""
    may_be_repeated: bool = False


JSON = Option("json", "print one JSON document on standard output")
# Both `./invokew submit` and the workspace's `submit` have these.
SUBMISSION = (
    Option("working-dir", "folder your program is in (default: the current one)", "D"),
    Option(
        "py-modules",
        "folder of a package that your program imports; may be given several times",
        "D",
        may_be_repeated=True,
    ),
    Option("entrypoint", 'what to run there, as in "python your_program.py --its option"', "E"),
    Option("runtime-env", "YAML file with more of Ray's runtime_env (pip, env_vars, ...)", "F"),
    Option("debug", "its processes open a debugger and wait for one: breakpoints in unmodified code"),
    Option("post-mortem", "with --debug, an exception that a task does not catch stops where it was raised"),
    Option(
        "attach-timeout", "with --debug, seconds that they wait (default: 60); with 0 they do not wait", "S"
    ),
    JSON,
)


def seconds(
    option: str, value: float | str, *, hint: str, most: float = inf, may_be_zero: bool = True
) -> float:
    """Returns the seconds that `option` (as in `--timeout`) was given, at most `most`.

    Raises InvalidArgument with `hint` for what is no number, and for a number outside the bounds.
    """
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 <= number <= most or (number == 0 and not may_be_zero):
        raise InvalidArgument(f"{option} is {value!r}", hint=hint)
    return number
