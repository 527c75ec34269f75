"""Commands of the program `rayside`: the options of each, and what it calls."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rayside import options
from rayside.console import Console
from rayside.errors import InvalidArgument
from rayside.options import MOST_STOPS, Option, stops_number, timeout_seconds
from rayside.settings import Settings
from rayside.settings_sources import read

if TYPE_CHECKING:
    from rayside.connection.access import Access

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
_CONNECT = """\
Connect to an existing Ray cluster. No Ray is needed on this machine. Running it again repairs the connection.

examples:
  rayside connect --address http://head.example.com:8265   # this machine reaches Ray's nodes
  rayside connect --ssh head.example.com                   # it reaches the head alone, by OpenSSH
  rayside connect --context my-context --namespace ray     # a RayCluster in Kubernetes

then:
  rayside submit --debug --working-dir . --entrypoint "python my_program.py"
  rayside debug --break my_task.py:12
  rayside disconnect
"""
_DEBUG = """\
Debug the tasks of a cluster in this terminal, or scripted with --json.

examples:
  rayside debug                                  # stops at what is paused
  rayside debug --break my_task.py:12:'x > 3'
  rayside debug --json --evaluate x --break my_task.py:12
  rayside debug --launch-json                    # tells VS Code how to attach
"""
_MCP = """\
Serve the debugger to a coding agent over standard input and output (MCP). The agent starts this command.

An agent never takes over from a person's debugger; a person takes over from an agent by attaching.
"""
_COMPLETION = """\
Print a script that completes the commands and options of rayside.

  bash: eval "$(rayside completion bash)"        in ~/.bashrc
  zsh:  eval "$(rayside completion zsh)"         in ~/.zshrc, after compinit
  fish: rayside completion fish | source         in ~/.config/fish/config.fish
"""


@dataclass(frozen=True)
class Command:
    """Command of `rayside`: `run` gets the parsed options; its result is the exit code.

    `positional` are arguments without a dash; `usage` replaces the first line of the help where argparse's
    own is poor.
    """

    name: str
    help: str
    run: Callable[[argparse.Namespace, Console], int | None]
    options: tuple[Option, ...] = ()
    positional: tuple[Option, ...] = ()
    description: str = ""
    is_for_a_cluster: bool = True
    usage: str | None = None

    @property
    def all_options(self) -> tuple[Option, ...]:
        return (*self.options, *((options.NAME,) if self.is_for_a_cluster else ()))


def _settings(given: argparse.Namespace, console: Console) -> Settings:
    """Returns the settings: options override the environment, which overrides the project."""
    names = ("name", *(option.key for option in options.CONNECT))
    settings = read({name: getattr(given, name, None) for name in names})
    console.cluster = settings.name
    return settings


def _job(given: argparse.Namespace) -> str | None:
    """Returns the job id from `ID` or `--job ID`. Raises InvalidArgument for both at once."""
    job: str | None = given.id or given.job
    if given.id and given.job:
        raise InvalidArgument(f"{job} and --job {given.job} both name a job", hint="leave out one of them")
    return job


def _access(given: argparse.Namespace, console: Console) -> Access:
    from rayside.verbs import connecting

    return connecting.access(_settings(given, console), console)


# --- the commands ------------------------------------------------------------------------


def _run(given: argparse.Namespace, console: Console) -> int:
    from math import inf

    from rayside import run_program
    from rayside.client.commands import break_option, evaluate_option

    if not given.program:
        raise InvalidArgument("no program is named", hint="as in: rayside run my_program.py")
    listen = None
    if given.listen is not None:
        listen = options.port_of("--listen", given.listen)
        if given.breaks or given.evaluate or given.json:
            raise InvalidArgument(
                "--listen leaves breakpoints and values to the editor", hint="leave out the one or the other"
            )
    return run_program.run(
        run_program.Program(
            *(given.program[0], given.program[1:]),
            is_module=given.is_module,
            breaks=[break_option(text) for text in given.breaks],
            evaluate=[evaluate_option(text) for text in given.evaluate],
            post_mortem=given.post_mortem,
            listen=listen,
            timeout=timeout_seconds(given.timeout or inf),
            stops=stops_number(given.stops or str(MOST_STOPS)),
        ),
        console,
    )


def _connect(given: argparse.Namespace, console: Console) -> None:
    from rayside.verbs import connecting

    connecting.connect(_settings(given, console), console)


def _status(given: argparse.Namespace, console: Console) -> None:
    from rayside.verbs import connecting

    connecting.status(_settings(given, console), console, everyone=given.everyone)


def _disconnect(given: argparse.Namespace, console: Console) -> None:
    from rayside.verbs import connecting

    connecting.disconnect(_settings(given, console), console)


def _submit(given: argparse.Namespace, console: Console) -> None:
    from rayside.ray.debug import debugging
    from rayside.verbs import submitting

    prints = given.print_runtime_env or given.serve
    asked = debugging(
        given.debug or prints,
        post_mortem=given.post_mortem,
        attach_timeout=given.attach_timeout,
        pip_debugpy=given.pip_debugpy,
        record_failures=given.record_failures,
        no_record_failures=given.no_record_failures,
        serve=given.serve,
    )
    what = given.working_dir, tuple(given.py_modules), given.entrypoint, given.runtime_env
    request = submitting.Request(*what, submitting.masking(asked, _settings(given, console)))
    access = _access(given, console)
    if prints:
        submitting.print_runtime_env(access, console, request, wait=given.wait, serve=given.serve)
    else:
        submitting.submit(access, console, request.prepare(), wait=given.wait)


def _debug(given: argparse.Namespace, console: Console) -> int | None:
    from rayside.verbs import debugging

    access = _access(given, console)
    if given.launch_json:
        debugging.launch_json(access, console)
        return None
    return debugging.debug(
        access,
        console,
        job=given.job,
        evaluate=given.evaluate,
        timeout=given.timeout or "60",
        stops=given.stops or str(MOST_STOPS),
        breaks=given.breaks,
        exceptions=given.exceptions,
        everyone=given.everyone,
        children=not given.no_children,
    )


def _breakpoints(given: argparse.Namespace, console: Console) -> None:
    from rayside.verbs import relay_requests

    relay_requests.breakpoints(_access(given, console), console, everyone=given.everyone)


def _stacks(given: argparse.Namespace, console: Console) -> None:
    from rayside.verbs import relay_requests

    job, access = _job(given), _access(given, console)
    relay_requests.stacks(access, console, job=job, everyone=given.everyone)


def _compare(given: argparse.Namespace, console: Console) -> None:
    from rayside.verbs import relay_requests

    access = _access(given, console)
    relay_requests.compare(access, console, given.expr, job=given.job, everyone=given.everyone)


def _retry(given: argparse.Namespace, console: Console) -> int:
    from rayside.client.retrying import Retry
    from rayside.verbs import retrying

    wanted = Retry(
        given.task or "",
        here_only=given.here_only,
        from_start=given.from_start,
        as_they_are=given.as_they_are,
        within=timeout_seconds(given.timeout or "60"),
    )
    return retrying.retry(_access(given, console), console, wanted, job=given.job, everyone=given.everyone)


def _edits(given: argparse.Namespace, console: Console) -> None:
    from rayside.verbs import retrying

    retrying.edits(_access(given, console), console, job=given.job, everyone=given.everyone)


def _failures(given: argparse.Namespace, console: Console) -> None:
    from rayside.verbs.recorded_failures import failures

    access = _access(given, console)
    failures(access, console, job=given.job, get=given.get, to=given.to, everyone=given.everyone)


def _replay(given: argparse.Namespace, console: Console) -> int:
    from rayside import replay

    asked = replay.Asked(given.run, tuple(given.breaks), given.listen, given.submit, given.yes)
    return replay.replay(given.file, console, asked, lambda: _access(given, console))


def _attach(given: argparse.Namespace, console: Console) -> None:
    from rayside.verbs import attaching

    attaching.attach(_access(given, console), console, given.id)


def _mcp(given: argparse.Namespace, console: Console) -> None:
    from rayside.verbs import mcp_server

    mcp_server.serve(lambda: _access(given, console), console, job=given.job, look=given.look, act=given.act)


def _logs(given: argparse.Namespace, console: Console) -> int:
    from rayside.verbs import job_output

    job, access = _job(given), _access(given, console)
    return job_output.logs(access, console, job=job, follow=given.follow, ray=given.ray)


def _completion(given: argparse.Namespace, console: Console) -> None:
    from rayside.completion import script

    console.output(script(given.shell, COMMANDS))


_EXPR = Option("expr", "expression, as in 'loss' or 'len(rows)'", "EXPR")
_JOB = (Option("id", "id of a job, in place of --job", "ID", is_optional=True),)
_SHELL = Option("shell", "bash, zsh or fish", "SHELL")
COMMANDS = (
    Command(
        "run",
        "run a Ray program under the debugger",
        *(_run, options.RUN, (), _RUN, False),
        usage="rayside run [OPTIONS] [-m MODULE | SCRIPT] [ARGUMENTS...]",
    ),
    Command(
        "connect",
        "connect to an existing Ray cluster",
        _connect,
        (*options.CONNECT, options.JSON),
        (),
        _CONNECT,
    ),
    Command("submit", "submit a job: your program and packages", _submit, options.SUBMIT),
    Command("debug", "debug the tasks in this terminal, or scripted", _debug, options.DEBUG, (), _DEBUG),
    Command("breakpoints", "list the tasks that are paused now", _breakpoints, options.BREAKPOINTS),
    Command(
        "stacks",
        "show what all processes of a job do now, grouped",
        _stacks,
        options.STACKS,
        _JOB,
    ),
    Command(
        "compare", "compare an expression's value in all stopped tasks", _compare, options.COMPARE, (_EXPR,)
    ),
    Command(
        "retry", "run failed tasks again, with your edited files", _retry, options.RETRY, (options.TASK,)
    ),
    Command("edits", "list the files of a job that were edited while it ran", _edits, options.STACKS),
    Command(
        "failures", "list recorded failures of tasks, or fetch one as a file", _failures, options.FAILURES
    ),
    Command(
        "replay",
        "open a recorded failure without a cluster, or call its function again",
        *(_replay, options.REPLAY, (options.CAPSULE,)),
    ),
    Command(
        "attach",
        "open a job without --debug to the debugger, or show its stacks",
        _attach,
        (options.JSON,),
        (options.PROCESSES,),
    ),
    Command("mcp", "serve the debugger to a coding agent", _mcp, options.MCP, (), _MCP),
    Command("logs", "show what a job printed, or the log of Ray's head", _logs, options.LOGS, _JOB),
    Command("status", "show the state of the connection, and the jobs", _status, options.STATUS),
    Command("disconnect", "end the connection; the cluster and its jobs stay", _disconnect),
    Command(
        "completion",
        "print a completion script for bash, zsh or fish",
        _completion,
        (),
        (_SHELL,),
        _COMPLETION,
        False,
    ),
)
