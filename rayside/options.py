"""Options of verbs, of `rayside` and of the workspace's `submit`: their help, their parser, value checks."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Any, NoReturn

from rayside.errors import InvalidArgument

# A URL without a path, and without a user, which process lists would show.
_ADDRESS = re.compile(r"https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")
_KUBERNETES_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
# ssh(1) accepts a name from its configuration, user@host, or a URI; a leading - would make it an option.
_SSH_USER, _SSH_NAME = r"([A-Za-z0-9._+%-]{1,64}@)?", r"([A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])"
_SSH_HOST = re.compile(rf"(?!-)({_SSH_USER}{_SSH_NAME}|ssh://{_SSH_USER}{_SSH_NAME}(:[0-9]{{1,5}})?)")


@dataclass(frozen=True)
class Option:
    """Command-line option, as in `--working-dir D`; without a `metavar` it is a flag."""

    name: str
    help: str
    metavar: str = ""
    may_be_repeated: bool = False
    is_optional: bool = False  # of an argument without a dash

    @property
    def key(self) -> str:
        """Returns the option's name in Python."""
        return {"break": "breaks"}.get(self.name, self.name.replace("-", "_"))


# Limit: stops of the scripted debugger; a breakpoint in a loop would fill the memory.
MOST_STOPS = 1_000
JSON = Option("json", "print one JSON document on standard output")
# Options of both `./invokew submit` and the workspace's `submit`.
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
    Option("debug", "open the job's processes to the debugger, for breakpoints in unmodified code"),
    Option("post-mortem", "with --debug, stop at uncaught exceptions of tasks, where they were raised"),
    Option("record-failures", "with --debug, a failed task leaves a capsule (default with --post-mortem)"),
    Option("no-record-failures", "with --post-mortem, a failed task leaves no capsule"),
    Option("attach-timeout", "with --debug, seconds to wait for a debugger (default: 60); 0: no wait", "S"),
    JSON,
)


# An argument without a dash.
PROCESSES = Option("id", "id of a job, an actor or a worker", "ID")
_WHOM = "a task's name, a process id, a worker's id or @GROUP (default: all that have failed)"
TASK = Option("task", _WHOM, "TASK", is_optional=True)
EVERYONE = Option("everyone", "jobs of all users of the Ray cluster, not only yours")
_JOB = Option("job", "id of a job (default: the newest)", "ID")
NAME = Option("name", "name of the cluster, if there are several (default: rayside)", "NAME")
BREAK = Option(
    "break",
    "FILE:LINE[ first| gather N][:CONDITION] to stop at, FILE of yours; may be repeated",
    "PLACE",
    may_be_repeated=True,
)
POST_MORTEM = Option("post-mortem", "stop at uncaught exceptions, where they were raised")
EVALUATE = Option(
    "evaluate",
    "expression to evaluate at each stop (with --json); may be given several times",
    "EXPR",
    may_be_repeated=True,
)
STOPS = Option("stops", f"scripted: end after N stops, and let the job continue (default: {MOST_STOPS})", "N")
CONNECT = (
    Option("address", "the dashboard of an existing Ray cluster, as in http://HOST:8265", "URL"),
    Option("ssh", "the host of an existing Ray cluster's head, reached by OpenSSH", "HOST"),
    Option("context", "the context of a kubeconfig that leads to a Ray cluster in Kubernetes", "CONTEXT"),
    Option("namespace", "the namespace of that Ray cluster (default: the context's)", "NAMESPACE"),
    Option("ray-cluster", "the RayCluster, RayJob or RayService, if the namespace has several", "NAME"),
    Option("token-file", "the file with the Ray cluster's token (default: Ray's own locations)", "FILE"),
    Option(
        "user", "your name on your jobs, for other users of the Ray cluster (default: your login)", "NAME"
    ),
)
SUBMIT = (
    *SUBMISSION,
    Option("pip-debugpy", "with --debug, install debugpy with pip: for an image that has none"),
    Option("wait", "show the job's output until it ends; the exit code is the job's outcome"),
    Option("print-runtime-env", "submit nothing: print what --debug adds, for a ray.init of your own"),
    Option("serve", "submit nothing: print the same for the config of a Ray Serve application"),
)
DEBUG = (
    Option("job", "id of a job, to see only its tasks (default: all jobs; with --json the newest one)", "ID"),
    BREAK,
    Option("exceptions", "stop at exceptions that a task does not catch"),
    EVALUATE,
    Option("timeout", "seconds to wait for the next stop (default: 60)", "S"),
    STOPS,
    Option("launch-json", "only write the configuration for VS Code to .vscode/launch.json"),
    Option("json", "scripted: record each stop, resume, and print one document at the job's end"),
    Option("everyone", "debug jobs of all users of the Ray cluster, not only yours"),
    Option("no-children", "do not debug child processes of tasks, such as data loaders"),
)
STATUS = BREAKPOINTS = (JSON, EVERYONE)
STACKS = COMPARE = (_JOB, JSON, EVERYONE)
RETRY = (
    _JOB,
    Option("here-only", "only the retried tasks get the edited files, not the job's later ones"),
    Option("from-start", "a generator yields its values again (default: it continues after the last one)"),
    Option("as-they-are", "use the inputs as the failed call left them if the originals are unavailable"),
    Option("timeout", "seconds to wait for the outcome (default: 60)", "S"),
    JSON,
    EVERYONE,
)
MCP = (
    Option("look", "only tools that look, and none that resumes, evaluates or edits (default)"),
    Option("act", "also tools that evaluate, set breakpoints, resume and retry, while no person debugs"),
    Option("job", "id of the only visible job (default: all of your jobs)", "ID"),
)
FAILURES = (
    Option("job", "id of a job, to list only its failures", "ID"),
    Option("get", "fetch the capsule of that failure", "ID"),
    Option("to", "with --get, the file to write (default: ID.capsule in this folder)", "FILE"),
    JSON,
    EVERYONE,
)
REPLAY = (
    Option("run", "call the function here with its recorded inputs, under the debugger"),
    Option("break", "with --run, line to stop at; may be given several times", "FILE:LINE[:CONDITION]", True),
    Option("listen", "port for an editor, in place of the terminal; 0 takes a free one", "PORT"),
    Option("submit", "call it in a job with --debug --post-mortem, with this folder as working_dir"),
    Option("yes", "with --run or --submit, run pickled code without asking"),
)
CAPSULE = Option("file", "a capsule file from `failures --get`", "FILE")
LOGS = (
    Option("job", "id of the job whose output to show (default: the newest job)", "ID"),
    Option("follow", "continue until the job has ended"),
    Option("ray", "show the log of Ray's head instead"),
)
RUN = (
    Option("break", "line to stop at; may be given several times", "FILE:LINE[:CONDITION]", True),
    POST_MORTEM,
    Option("listen", "port for an editor, in place of the terminal; 0 takes a free one", "PORT"),
    Option("evaluate", "scripted, as --json: expression to evaluate at each stop", "EXPR", True),
    Option("timeout", "scripted: seconds without a stop after which the program continues alone", "S"),
    STOPS,
    Option("json", "scripted: record each stop, resume, and print one document"),
)


def helps(options: Iterable[Option]) -> dict[str, str]:
    """Returns the help texts, by the options' names."""
    return {option.name: option.help for option in options}


class Parser(argparse.ArgumentParser):
    """Command-line parser that raises InvalidArgument for wrong arguments."""

    def take(self, options: Iterable[Option]) -> None:
        """Adds options; the default is False for a flag, an empty list for one that may be repeated."""
        for option in options:
            if not option.metavar:
                self.add_argument(f"--{option.name}", dest=option.key, action="store_true", help=option.help)
                continue
            repeated: dict[str, Any] = {"action": "append", "default": []} if option.may_be_repeated else {}
            self.add_argument(
                f"--{option.name}", dest=option.key, metavar=option.metavar, help=option.help, **repeated
            )

    def error(self, message: str) -> NoReturn:
        raise InvalidArgument(message, hint=f"{self.prog} --help shows the usage")


def seconds(
    option: str, value: float | str, *, hint: str, most: float = inf, may_be_zero: bool = True
) -> float:
    """Returns the value of `option` (as in `--timeout`) in seconds, at most `most`.

    Raises InvalidArgument with `hint` if it is no number, or out of bounds.
    """
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 <= number <= most or (number == 0 and not may_be_zero):
        raise InvalidArgument(f"{option} is {value!r}", hint=hint)
    return number


def timeout_seconds(value: float | str) -> float:
    """Returns the value of `--timeout` in seconds. Raises InvalidArgument."""
    return seconds("--timeout", value, may_be_zero=False, hint="give it in seconds, above 0")


def stops_number(text: str) -> int:
    """Returns the value of `--stops`. Raises InvalidArgument."""
    if not re.fullmatch("0*[1-9][0-9]{0,8}", text):
        raise InvalidArgument(f"--stops is {text!r}", hint="give a whole number, above 0")
    return int(text)


def port_of(option: str, text: str) -> int:
    """Returns the port in the value of `option`, 0 for a free one. Raises InvalidArgument."""
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 6 else -1
    if not 0 <= number <= 65535:
        raise InvalidArgument(
            f"{option} {text} is no port", hint="choose one from 1024 to 65535, or 0 for a free one"
        )
    return number


def is_address(text: str) -> bool:
    """Returns whether it is a dashboard's URL, as in http://HOST:8265."""
    port = re.search(r":([0-9]+)$", text)
    return bool(_ADDRESS.fullmatch(text)) and (port is None or 0 < int(port[1]) < 65536)


def is_ssh_host(text: str) -> bool:
    """Returns whether ssh accepts it as a host."""
    return bool(_SSH_HOST.fullmatch(text))


def is_kubernetes_name(text: str) -> bool:
    """Returns whether it is a valid name of a Kubernetes object."""
    return bool(_KUBERNETES_NAME.fullmatch(text))
