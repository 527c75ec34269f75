"""The verbs of Rayside. Each is a few lines: its options, and the function that does it."""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from invoke.collection import Collection
from invoke.context import Context
from invoke.exceptions import Exit
from invoke.parser.argument import Argument
from invoke.tasks import Task, task

sys.path.insert(0, str(Path(__file__).resolve().parent))

from bootstrap.given_settings import parse
from bootstrap.instance import in_workspace
from bootstrap.settings import DEFAULT_NAME, ROOT, SOURCES, TARGETS, Settings
from rayside.console import Console
from rayside.errors import USAGE, Interrupted, RaysideError
from rayside.options import (
    CAPSULE,
    CONNECT,
    DEBUG,
    EVERYONE,
    FAILURES,
    JSON,
    LOGS,
    NAME,
    PROCESSES,
    REPLAY,
    RETRY,
    STACKS,
    SUBMIT,
    TASK,
    helps,
    seconds,
)
from rayside.settings_sources import with_project
from rayside.signals import signals_noticed, termination_interrupts

if TYPE_CHECKING:
    from rayside.connection.access import Access


class Verb(Task):  # type: ignore[type-arg]
    """A task whose expected errors end it with a message, a hint and their own exit code."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # a terminal that knows no ✓ must not stop us
                stream.reconfigure(errors="replace")
        # The option of this name of `bench` says which benchmark.
        name = kwargs.get("name") if self.name != "bench" else None
        console = _console(args[0], name, bool(kwargs.get("json")))
        termination_interrupts()
        try:
            with signals_noticed():
                return super().__call__(*args, **kwargs)
        except KeyboardInterrupt:
            error: RaysideError = Interrupted("interrupted", hint="run the command again to go on")
        except RaysideError as caught:
            error = caught
        except BrokenPipeError:  # the reader of our output has seen enough
            sys.stderr.close()
            raise Exit(code=0) from None
        console.error(error)
        if self.name in ("up", "prepare") and error.exit_code > USAGE and "./invokew" not in error.hint:
            console.event(f" then: {_as_typed(self.name)}")
        raise Exit(code=error.exit_code)

    def arg_opts(self, name: str, default: Any, taken_names: set[str]) -> dict[str, Any]:
        """Returns an option's properties; its short form is never -h, which is Invoke's own for --help."""
        return dict(super().arg_opts(name, default, taken_names | {"h"}))


class _UnlessAll(Argument):
    """A positional argument that may be left out where `--all` is given, which Invoke knows nothing of."""

    all: Argument

    @property
    def value(self) -> Any:
        return super().value or ("" if self.all.value else None)

    @value.setter
    def value(self, text: str) -> None:
        self.set_value(text)


class NamingVerb(Verb):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # Invoke takes any word for the value of a positional argument that is lacking.
        if {kwargs.get(name) for name in self.positional or ()} & {"--help", "-h"}:
            os.execv(ROOT / "invokew", ["invokew", "--help", self.name])
        return super().__call__(*args, **kwargs)


class LabVerb(NamingVerb):
    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:
        arguments = super().get_arguments(ignore_unknown_help)
        by_name = {argument.name: argument for argument in arguments}
        lab = _UnlessAll(name="lab", help=by_name["lab"].help, positional=True)
        lab.all = by_name["all"]
        return [lab if argument.name == "lab" else argument for argument in arguments]


def _as_typed(verb: str) -> str:
    words = sys.argv[sys.argv.index(verb) :] if verb in sys.argv else [verb]
    return f"./invokew {shlex.join(words)}"


def _given(
    invocation: Context, json: bool = False, /, *, name: str | None = None, **flags: object
) -> tuple[Settings, Console]:
    """Returns the settings, with the flags that were given, and the console."""
    given = {key: value for key, value in {"name": name, **flags}.items() if value is not None}
    if "mirror" in given:
        given.setdefault("source", "mirror")
    configured = with_project(invocation.config.get("rayside", {}), given=given)
    return parse({**configured, **given}), _console(invocation, name, json)


def _existing(context: Context, json: bool = False, /, *, name: str | None = None) -> tuple[Access, Console]:
    """Returns the access to a cluster that is there, and the console. Raises NotRunning."""
    from bootstrap.targets import choice
    from rayside.system.shell import Shell

    settings, console = _given(context, json, name=name)
    return choice.existing(settings, Shell()).access, console


def _console(context: Context, name: str | None, json: bool) -> Console:
    configured = context.config.get("rayside", {})
    console = Console(json, name or configured.get("name") or DEFAULT_NAME)
    with contextlib.suppress(RaysideError):  # The verb itself says what is wrong with a setting.
        configured = with_project(configured)
        console.cluster = name or configured.get("name") or DEFAULT_NAME
        console.made_elsewhere = in_workspace(parse(configured).state_folder)
    return console


def _engine_wait(given: str | None) -> float | None:
    if given is None:
        return None
    return seconds("--wait-for-engine", given, hint="give it in seconds; with 0 it does not wait")


_KEY = "a public key of minisign, or its file: a bundle that its owner has not signed is refused"
# Options of several verbs.
_HELP = {
    "target": f"where Ray runs: {', '.join(TARGETS)} (default: auto)",
    "source": f"where programs come from: {', '.join(SOURCES)} (default: auto)",
    "bundle": "a file that ./invokew bundle made: up takes everything from it, and asks no network",
    "mirror": "a registry that ./invokew mirror filled, HOST[:PORT][/PATH]: up pulls everything from it",
    "bundle-key": _KEY,
    "wait-for-engine": "seconds to wait for a Docker engine that is only just starting (default: 0)",
    **helps((NAME, JSON, EVERYONE)),
}


_Body = TypeVar("_Body", bound=Callable[..., None])


def verb(
    klass: type[Verb] = Verb, help: Mapping[str, str] | None = None, **how: Any
) -> Callable[[_Body], _Body]:
    """Makes a task of a function; `help` explains options that several verbs don't have, or otherwise."""

    def made(body: _Body) -> _Body:
        names = {name.replace("_", "-") for name in inspect.signature(body).parameters}
        shared = {name: text for name, text in _HELP.items() if name in names}
        return cast(_Body, task(klass=klass, help={**shared, **(help or {})}, **how)(body))

    return made


@verb(
    help={
        **helps(CONNECT),
        "create": "make a Ray cluster there, installing KubeRay if missing; down removes both",
        "workspace": "run the workspace there, as a pod beside it (with --context)",
        "example": "submit the example, wait until it pauses (default; not on an existing Ray cluster)",
        "use-context": "make the cluster kubectl's current one",
    },
)
def up(
    invocation: Context,
    name: str | None = None,
    target: str | None = None,
    source: str | None = None,
    mirror: str | None = None,
    bundle: str | None = None,
    bundle_key: str | None = None,
    address: str | None = None,
    ssh: str | None = None,
    context: str | None = None,
    namespace: str | None = None,
    ray_cluster: str | None = None,
    create: bool = False,
    workspace: bool = False,
    token_file: str | None = None,
    example: bool = True,
    use_context: bool = False,
    wait_for_engine: str | None = None,
    user: str | None = None,
) -> None:
    """Bring up Ray, and an example paused at its breakpoint. Safe to run again at any time."""
    given = dict(locals())  # the options, by their names
    from bootstrap.verbs import up_and_down

    for option in ("invocation", "example", "use_context", "wait_for_engine", "workspace"):
        del given[option]
    given |= {"create": create or None, "workspace_pod": workspace or None}
    settings, console = _given(invocation, **given, engine_wait=_engine_wait(wait_for_engine))
    up_and_down.up(settings, console, example=example, use_context=use_context)


@verb()
def status(context: Context, name: str | None = None, json: bool = False, everyone: bool = False) -> None:
    """Show the state of each step, and the addresses."""
    from bootstrap.verbs import up_and_down

    up_and_down.status(*_given(context, json, name=name), everyone=everyone)


@verb(name="list")
def list_clusters(context: Context, json: bool = False) -> None:
    """List all clusters: name, target, whether all of it is ready, addresses."""
    from bootstrap.verbs import up_and_down

    up_and_down.list_clusters(*_given(context, json))


@verb(
    help={
        "target": f"what the machine is looked at for: {', '.join(TARGETS)} (default: auto)",
        "fix": "fix what can be fixed, then look again",
        "tests": "look at what the test suites need, too",
    },
)
def doctor(
    context: Context,
    name: str | None = None,
    target: str | None = None,
    fix: bool = False,
    tests: bool = False,
    json: bool = False,
) -> None:
    """Show what this machine lacks; with --fix, fix it."""
    from bootstrap.verbs import doctor

    code = doctor.doctor(*_given(context, json, name=name), target=target, fix=fix, tests=tests)
    raise Exit(code=code)


@verb(
    iterable=["py_modules"],
    help={
        **helps(SUBMIT),
        "job": "YAML file with a RayJob of your own (kind); it may make a cluster of its own",
    },
)
def submit(
    context: Context,
    name: str | None = None,
    working_dir: str | None = None,
    py_modules: list[str] | None = None,
    entrypoint: str | None = None,
    runtime_env: str | None = None,
    job: str | None = None,
    debug: bool = False,
    post_mortem: bool = False,
    record_failures: bool = False,
    no_record_failures: bool = False,
    attach_timeout: str | None = None,
    pip_debugpy: bool = False,
    wait: bool = False,
    print_runtime_env: bool = False,
    serve: bool = False,
    json: bool = False,
) -> None:
    """Submit a job: your program and packages, or without options the example."""
    from bootstrap.verbs import submit as verb
    from rayside.ray.debug import debugging

    asked = debugging(
        debug or print_runtime_env or serve,
        post_mortem=post_mortem,
        attach_timeout=attach_timeout,
        pip_debugpy=pip_debugpy,
        record_failures=record_failures,
        no_record_failures=no_record_failures,
        serve=serve,
    )
    request = verb.Request(working_dir, tuple(py_modules or ()), entrypoint, runtime_env, asked, job)
    if print_runtime_env or serve:
        from rayside.verbs import submitting

        submitting.print_runtime_env(*_existing(context, json, name=name), request, wait=wait, serve=serve)
    else:
        verb.submit(*_given(context, json, name=name), request, wait=wait)


@verb(
    klass=NamingVerb,
    positional=["id"],
    help=helps((PROCESSES,)),
)
def attach(context: Context, id: str, name: str | None = None, json: bool = False) -> None:
    """Open what runs without --debug to the debugger, where that is possible; else show its stacks."""
    from rayside.verbs import attaching

    attaching.attach(*_existing(context, json, name=name), id)


@verb(positional=["task"], help=helps((TASK, *RETRY)))
def retry(
    context: Context,
    task: str = "",
    name: str | None = None,
    job: str | None = None,
    here_only: bool = False,
    from_start: bool = False,
    as_they_are: bool = False,
    timeout: str = "60",
    json: bool = False,
    everyone: bool = False,
) -> None:
    """Run failed tasks again in place, with your files as they are now; their job goes on."""
    from rayside.client.retrying import Retry
    from rayside.options import timeout_seconds
    from rayside.verbs import retrying

    wanted = Retry(
        task,
        here_only=here_only,
        from_start=from_start,
        as_they_are=as_they_are,
        within=timeout_seconds(timeout),
    )
    access, console = _existing(context, json, name=name)
    raise Exit(code=retrying.retry(access, console, wanted, job=job, everyone=everyone))


@verb(help=helps(FAILURES))
def failures(
    context: Context,
    name: str | None = None,
    job: str | None = None,
    get: str | None = None,
    to: str | None = None,
    json: bool = False,
    everyone: bool = False,
) -> None:
    """List recorded failures of tasks, or fetch one as a file."""
    from rayside.verbs import recorded_failures as verb

    verb.failures(*_existing(context, json, name=name), job=job, get=get, to=to, everyone=everyone)


@verb(klass=NamingVerb, positional=["file"], iterable=["break_"], help=helps((CAPSULE, *REPLAY)))
def replay(
    context: Context,
    file: str,
    name: str | None = None,
    run: bool = False,
    break_: list[str] | None = None,
    listen: str | None = None,
    submit: bool = False,
    yes: bool = False,
) -> None:
    """Open a recorded failure without a cluster, or call its function again."""
    from rayside import replay as verb

    asked = verb.Asked(run, tuple(break_ or ()), listen, submit, yes)
    console = _console(context, name, False)
    raise Exit(code=verb.replay(file, console, asked, lambda: _existing(context, name=name)[0]))


@verb(help=helps(STACKS))
def edits(
    context: Context,
    name: str | None = None,
    job: str | None = None,
    json: bool = False,
    everyone: bool = False,
) -> None:
    """List the files of a job that were edited while it ran."""
    from rayside.verbs import retrying

    retrying.edits(*_existing(context, json, name=name), job=job, everyone=everyone)


@verb()
def breakpoints(
    context: Context, name: str | None = None, json: bool = False, everyone: bool = False
) -> None:
    """List the tasks that are paused now."""
    from rayside.verbs import relay_requests

    relay_requests.breakpoints(*_existing(context, json, name=name), everyone=everyone)


@verb(
    iterable=["evaluate", "break_"],
    help={
        **helps(DEBUG),
        "stacks": "only show what all processes of a job do now, grouped, and stop none of them",
        "compare": "only show what this expression gives in all stopped tasks of a job, grouped",
    },
)
def debug(
    context: Context,
    name: str | None = None,
    job: str | None = None,
    break_: list[str] | None = None,
    evaluate: list[str] | None = None,
    exceptions: bool = False,
    timeout: str = "60",
    stops: str = "1000",
    launch_json: bool = False,
    json: bool = False,
    everyone: bool = False,
    stacks: bool = False,
    compare: str | None = None,
    no_children: bool = False,
) -> None:
    """Debug the tasks in this terminal, or scripted with --json; --launch-json is for VS Code."""
    from rayside.verbs import debugging

    if launch_json:
        from bootstrap.targets import choice
        from rayside.system.shell import Shell

        settings, console = _given(context, json, name=name)
        debugging.launch_json(choice.named(settings, Shell()).access, console)
        return
    access, console = _existing(context, json, name=name)
    if stacks or compare is not None:
        from rayside.verbs import relay_requests

        if stacks:
            relay_requests.stacks(access, console, job=job, everyone=everyone)
        else:
            relay_requests.compare(access, console, compare or "", job=job, everyone=everyone)
        return
    code = debugging.debug(
        access,
        console,
        job=job,
        evaluate=evaluate or [],
        timeout=timeout,
        stops=stops,
        breaks=break_ or [],
        exceptions=exceptions,
        everyone=everyone,
        children=not no_children,
    )
    raise Exit(code=code)


@verb(
    name="open",
    help={
        "browser": "open the address in a browser, where there is a screen (default)",
    },
)
def open_workspace(
    context: Context, name: str | None = None, browser: bool = True, json: bool = False
) -> None:
    """Show, and open, the browser workspace at the files of the newest job."""
    from bootstrap.verbs import open_workspace as opening

    opening.open_workspace(*_given(context, json, name=name), browser=browser)


@verb(
    help=helps(LOGS),
)
def logs(
    context: Context, name: str | None = None, job: str | None = None, follow: bool = False, ray: bool = False
) -> None:
    """Show what a job printed, or the log of Ray's head."""
    from rayside.verbs import job_output

    raise Exit(code=job_output.logs(*_existing(context, name=name), job=job, follow=follow, ray=ray))


@verb()
def labs(context: Context, json: bool = False) -> None:
    """List the labs: short lessons on debugging Ray, each with an exercise that is checked."""
    from bootstrap.verbs import labs as verbs

    verbs.list_labs(*_given(context, json))


@verb(
    klass=LabVerb,
    positional=["lab"],
    help={
        "lab": "which lab: its name or number, as ./invokew labs lists them",
        "step": "run the command of one step, by its number",
        "check": "check your exercise; with --all the labs themselves",
        "solve": "put the solution into your copy; what you edited is kept aside",
        "reset": "make your copy anew; what you edited is kept aside",
        "update": "take a changed lab from this folder; files of your copy that you edited stay",
        "all": "with --check: every lab that can be done on this cluster, in copies of their own; with "
        "--reset: every lab that you have begun",
    },
)
def lab(
    context: Context,
    lab: str | None = None,
    name: str | None = None,
    step: str | None = None,
    check: bool = False,
    solve: bool = False,
    reset: bool = False,
    update: str | None = None,
    all: bool = False,
    json: bool = False,
) -> None:
    """Follow one lab step by step in this terminal; or run one step of it, check, solve or reset it."""
    from bootstrap.verbs import labs as verbs

    settings, console = _given(context, json, name=name)
    changed = Path(update).expanduser().absolute() if update else None
    asked = {"step": step, "check": check, "solve": solve, "reset": reset}
    raise Exit(code=verbs.lab(settings, console, lab, all=all, update=changed, **asked))


@verb(
    help={
        "job": "id of the job to look at (default: all of them)",
        "pod": "name of the pod to look at (on Kubernetes)",
        "archive": "FILE.tar.gz or FILE.zip to write what was gathered to, without secrets, for a bug report",
    },
)
def diagnose(
    context: Context,
    name: str | None = None,
    job: str | None = None,
    pod: str | None = None,
    archive: str | None = None,
    json: bool = False,
) -> None:
    """Say what failed or is stuck, where and why, and the one next thing to do."""
    from bootstrap.verbs import diagnose

    diagnose.diagnose(*_given(context, json, name=name), job=job, pod=pod, archive=archive)


@verb()
def prepare(
    context: Context,
    name: str | None = None,
    target: str | None = None,
    source: str | None = None,
    mirror: str | None = None,
    bundle: str | None = None,
    bundle_key: str | None = None,
    wait_for_engine: str | None = None,
) -> None:
    """Fetch and build all that can be cached; start nothing."""
    from bootstrap.verbs import up_and_down

    wait = _engine_wait(wait_for_engine)
    from_bundle = {"mirror": mirror, "bundle": bundle, "bundle_key": bundle_key}
    given = _given(context, name=name, target=target, source=source, engine_wait=wait, **from_bundle)
    up_and_down.prepare(*given)


@verb(
    klass=NamingVerb,
    positional=["file"],
    help={
        "file": "the file to make, or with --inspect to look at",
        "sign": "the file of a secret key of minisign, which signs it",
        "bundle-key": f"with --inspect: {_KEY}",
        "inspect": "check that it is whole, and show what is in it",
        "platform": "what it is for, linux/amd64 or linux/arm64 (default: this machine's)",
        "python": "the Pythons there, as in 3.11,3.12 (default: this one's version)",
    },
)
def bundle(
    context: Context,
    file: str,
    inspect: bool = False,
    sign: str | None = None,
    bundle_key: str | None = None,
    platform: str | None = None,
    python: str | None = None,
    source: str | None = None,
    json: bool = False,
) -> None:
    """Make one file with all that up needs for the target kind, for a place without a network."""
    from bootstrap.verbs import bundle

    path = Path(file).expanduser().absolute()
    settings, console = _given(context, json, source=source)
    signer = Path(sign).expanduser().absolute() if sign else None
    key = bundle_key or settings.bundle_key
    if inspect:
        bundle.inspect(console, path, key)
    else:
        asked = bundle.Asked(platform or "", python or "", signer)
        bundle.make(settings, console, path, asked, bundle_key or "")


@verb(
    klass=NamingVerb,
    positional=["registry"],
    help={
        "registry": "the registry to fill, HOST[:PORT][/PATH]; the login is that of `docker login HOST`",
        "bundle": "a file that ./invokew bundle made (default: what this machine makes now)",
        "python": "the Pythons there, as in 3.11,3.12 (default: this one's version)",
        "platform": "what it is for, as in linux/amd64,linux/arm64 (default: this machine's)",
        "helm-values": "a folder for values by which KubeRay's Helm charts pull from there (default: none)",
    },
)
def mirror(
    context: Context,
    registry: str,
    bundle: str | None = None,
    bundle_key: str | None = None,
    python: str | None = None,
    platform: str | None = None,
    helm_values: str | None = None,
    source: str | None = None,
    json: bool = False,
) -> None:
    """Fill a private registry with all that `up --mirror` needs; it goes on where it was broken off."""
    from bootstrap.bundle.opened import path_of
    from bootstrap.verbs import bundle as bundles
    from bootstrap.verbs import mirror

    settings, console = _given(context, json, source=source, bundle_key=bundle_key)
    file = path_of(bundle) if bundle else None
    values = Path(helm_values).expanduser().absolute() if helm_values else None
    asked = bundles.Asked(platform or "", python or "")
    mirror.fill(settings, console, registry, file, asked, values)


@verb(
    help={
        "name": "the cluster beside which the places are (default: rayside)",
        "places": "make so many places, of which attendees get the next free one",
        "names": "make a place for each line of this file, and for --places N more",
        "dry-run": "say what would be made, and whether it fits, and make nothing",
        "status": "show the places, and whose they are",
        "sheet": "write a link for each place into this file: a page to print as FILE.html, else CSV",
        "free": "make a place nobody's, so that somebody else can have it, with the files in it",
        "push": "bring a lab of this clone to all places, as it is here; files that attendees edited stay",
        "reset": "make the labs of a place anew; what its attendee edited is kept there",
        "lab": "with --reset: this lab alone",
        "pause": "take the workers of all places away for a while; editors and files stay",
        "idle": "with --pause or --until: where nothing was done for so many minutes, and no job runs",
        "resume": "give all places their workers again",
        "collect": "write the files of each attendee into this folder, PLACE.tar.gz each",
        "until": "with --collect: wait until this time, as 17:30, and remove all places after it",
        "remove": "remove all places; the cluster itself stays",
    },
)
def workshop(
    invocation: Context,
    name: str | None = None,
    places: str | None = None,
    names: str | None = None,
    dry_run: bool = False,
    status: bool = False,
    sheet: str | None = None,
    free: str | None = None,
    push: str | None = None,
    reset: str | None = None,
    lab: str | None = None,
    pause: bool = False,
    idle: str | None = None,
    resume: bool = False,
    collect: str | None = None,
    until: str | None = None,
    remove: bool = False,
    json: bool = False,
) -> None:
    """Make places for attendees beside a cluster: a Ray, a debugger and an editor each, by one link."""
    asked = {option: bool(value) for option, value in dict(locals()).items()}
    from bootstrap.verbs import workshop as workshops
    from bootstrap.verbs import workshop_files as files
    from bootstrap.workshop import attendees

    settings, console = _given(invocation, json, name=name)
    for option in ("invocation", "name", "places", "names", "dry_run", "json"):
        del asked[option]
    workshops.require_one(makes=bool(places or names), **asked)
    if remove:
        workshops.remove(settings, console)
    elif reset:
        files.reset(settings, console, reset, lab or "")
    elif collect:
        folder = Path(collect).expanduser().absolute()
        if until:
            files.until(settings, console, until, folder, idle)
        else:
            files.collect(settings, console, folder)
    elif push:
        files.push(settings, console, push)
    elif pause:
        workshops.pause(settings, console, idle)
    elif resume:
        workshops.resume(settings, console)
    elif free:
        workshops.free(settings, console, free)
    elif sheet:
        workshops.sheet(settings, console, Path(sheet).expanduser().absolute())
    elif status:
        workshops.status(settings, console)
    else:
        of = attendees.asked(places, Path(names).expanduser() if names else None)
        workshops.make(settings, console, of, dry_run=dry_run)


@verb(help={"purge": "remove the cache too"})
def down(context: Context, name: str | None = None, purge: bool = False) -> None:
    """Remove all that `up` made, and nothing else."""
    from bootstrap.verbs import up_and_down

    up_and_down.down(*_given(context, name=name), purge=purge)


@verb(help={"output": "the file to write (default: ray-breakpoints.vsix, in the current folder)"})
def vsix(context: Context, output: str = "ray-breakpoints.vsix", json: bool = False) -> None:
    """Make the extension Ray Breakpoints for VS Code on your desktop, as a file to install."""
    from bootstrap.verbs import open_workspace as verbs

    verbs.vsix(*_given(context, json), Path(output).expanduser().absolute())


@verb(
    help={
        "suite": "only this suite: unit, integration, browser or e2e (default: all that can run here)",
        "args": "more arguments for pytest, which chooses among all tests then",
        "all": "run all tests, not only those that each change has to pass; this takes hours",
        "shard": "with --all: only one piece of them, as 2/4",
    },
)
def test(
    context: Context, suite: str | None = None, args: str = "", all: bool = False, shard: str | None = None
) -> None:
    """Run the checks and the tests that each change has to pass: the gate."""
    from bootstrap.verbs import development

    _, console = _given(context)
    raise Exit(code=development.test(console, suite=suite, everything=all, shard=shard, arguments=args))


@verb()
def check(context: Context) -> None:
    """Format, lint, types and layers."""
    from bootstrap.verbs import development

    raise Exit(code=development.check(Console()))


@verb(
    help={
        "name": "which benchmark: local, attach, cluster, conditions, kind, relay or tracing (default: local)"
    },
)
def bench(context: Context, name: str = "local") -> None:
    """Measure, as ratios within one run."""
    from bootstrap.verbs import development

    raise Exit(code=development.bench(Console(), name))


@verb()
def lock(context: Context) -> None:
    """Resolve the lock files in requirements/ anew, and record the digests of releases."""
    from bootstrap.verbs import development

    development.lock(*_given(context))


namespace = Collection(
    up,
    status,
    list_clusters,
    open_workspace,
    doctor,
    submit,
    attach,
    retry,
    edits,
    failures,
    replay,
    breakpoints,
    debug,
    labs,
    lab,
    logs,
    diagnose,
    prepare,
    bundle,
    mirror,
    workshop,
    down,
    vsix,
    test,
    check,
    bench,
    lock,
)
# Registered without values, so that Invoke hands over what invoke.yaml and the environment say as it
# stands: with a default it would cast "false" to True.
namespace.configure({"rayside": dict.fromkeys(Settings.__dataclass_fields__)})
