"""Does `doctor`: shows what this machine lacks for its target, and repairs what can be repaired."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from bootstrap import settings as knobs
from bootstrap import step as engine
from bootstrap.codespaces import Codespace
from bootstrap.console import Console
from bootstrap.errors import MACHINE, MissingProgram, RaysideError
from bootstrap.instance import Ports
from bootstrap.settings import Settings
from bootstrap.shell import Shell
from bootstrap.step import Condition, Step
from bootstrap.steps.debian_program import chromium, debootstrap, fish, registry, zsh
from bootstrap.steps.engine import Engine, installable
from bootstrap.steps.inotify import Inotify
from bootstrap.steps.machine import require_port, require_python
from bootstrap.targets import choice
from bootstrap.targets.kind import Kind
from bootstrap.targets.local import Local


@dataclass(frozen=True)
class Finding:
    """The state of one thing; `fix` is what to do, empty where nothing is to be done."""

    id: str
    ok: bool
    detail: str
    fix: str = ""


@dataclass(frozen=True)
class Probe:
    """A way to look at one thing, and to mend it where that is in our power.

    `look` returns what was seen, or raises the error that says what is wrong and what to do.
    `repair` shows its own progress.
    """

    id: str
    look: Callable[[], str]
    repair: Callable[[], None] | None = None

    def finding(self) -> Finding:
        try:
            return Finding(self.id, True, self.look())
        except RaysideError as error:
            return Finding(self.id, False, error.message, error.hint)


class _NotThere(RaysideError):
    id, exit_code = "not-there", MACHINE


def doctor(
    settings: Settings, console: Console, *, target: str | None = None, fix: bool = False, tests: bool = False
) -> int:
    """Shows the findings, with `fix` after mending what can be mended; returns 0, or 3 where one is not ok.

    `target` overrides that of the settings; with `auto` an engine that can be installed here counts
    as one that answers. `tests` looks at what the test suites need too. Raises
    UnknownTarget.
    """
    if target is not None:
        settings = knobs.parse({**vars(settings), "target": target}, {})
    shell = Shell()
    chosen = choice.choose(settings, shell)
    if settings.target == "auto" and not chosen.present() and installable():
        # An engine can be installed here, and `auto` would take it.
        chosen = choice.choose(knobs.parse({**vars(settings), "target": "kind"}, {}), shell)
    assert isinstance(chosen, Kind | Local)
    probes = _machine(chosen)
    if isinstance(chosen, Kind):
        probes += _kind(chosen, shell, console)
    else:
        assert isinstance(chosen, Local)
        probes += _local(chosen, shell, console)
    if codespace := Codespace.here():
        probes.append(_ports_private(codespace, chosen.instance.ports))
    if tests:
        fix_tests = "./invokew doctor --fix --tests"
        probes += [
            _step(need(shell), shell, console, fix=fix_tests) for need in (registry, chromium, zsh, fish)
        ]
    findings = [probe.finding() for probe in probes]
    if fix:
        with console.progress():
            findings = [
                _mended(probe, finding, console) for probe, finding in zip(probes, findings, strict=True)
            ]
    ok = all(finding.ok for finding in findings)
    if console.as_json:
        console.document({"ok": ok, "findings": [asdict(finding) for finding in findings]})
    else:
        _show(console, findings)
    return 0 if ok else MACHINE


def _mended(probe: Probe, finding: Finding, console: Console) -> Finding:
    """Repairs, and returns the finding of a new look, whatever the repair believes.

    It looks again even without a repair: that of an earlier finding may have mended this one, too.
    """
    if finding.ok:
        return finding
    try:
        if probe.repair is not None:
            probe.repair()
    except RaysideError as error:
        return Finding(probe.id, False, error.message, error.hint)
    return probe.finding()


def _show(console: Console, findings: Sequence[Finding]) -> None:
    console.table(
        ("finding", "ok", "detail"),
        [(finding.id, "yes" if finding.ok else "NO", finding.detail) for finding in findings],
    )
    console.result()
    wrong = [finding for finding in findings if not finding.ok]
    for finding in wrong:
        console.result(f"{finding.id}: {finding.fix}")
    if not wrong:
        console.result("Nothing is missing. Next: ./invokew up")


def _machine(target: Kind | Local) -> list[Probe]:
    """Returns the probes of what every target needs."""
    settings, machine = target.settings, target.machine

    def system() -> str:
        name = f"{platform.system()} on {platform.machine()}"
        if platform.system() not in ("Linux", "Darwin"):
            raise _NotThere(f"{name} is not supported", hint="use Linux, macOS, or Windows through WSL 2")
        return name

    def memory() -> str:
        return "in use by the cluster" if machine.present() else f"{machine.require_memory():.1f} GiB free"

    def disk() -> str:
        return f"{machine.require_disk(settings.cache_folder):.0f} GiB free at {settings.cache_folder}"

    return [
        Probe("system", system),
        Probe("python", require_python),
        Probe("memory", memory),
        Probe("disk", disk),
    ]


def _ports(target: Kind | Local) -> list[Probe]:
    def probe(setting: str) -> Probe:
        def look() -> str:
            number = target.ports[setting]
            if target.present():
                return f"{number}, in use by the cluster"
            require_port(setting, number)
            return f"{number} is free"

        return Probe(setting.replace("_", "-"), look)

    return [probe(name) for name in target.ports]


def _ports_private(codespace: Codespace, listened: Ports) -> Probe:
    """Returns the probe that no stranger on the internet reaches a port that the codespace forwards."""
    # These paths always answer the same; the relay speaks no HTTP.
    ports = {listened.workspace: "/robots.txt", listened.dashboard: "/", listened.relay: None}

    def look() -> str:
        public = {port: codespace.is_public(port, path) for port, path in ports.items()}
        if wrong := [str(port) for port, is_public in public.items() if is_public]:
            private = " ".join(f"{port}:private" for port in wrong)
            raise _NotThere(
                f"anybody on the internet reaches {', '.join(wrong)}",
                hint="make it private: Port Visibility in the Ports view, or "
                f"gh codespace ports visibility {private} --codespace {codespace.name}",
            )
        unknown = [str(port) for port, is_public in public.items() if is_public is None]
        private = ", ".join(str(port) for port, is_public in public.items() if is_public is False)
        if not unknown:
            return private
        return f"{f'{private}; ' if private else ''}could not be found out of {', '.join(unknown)}"

    return Probe("ports-private", look)


def _local(target: Local, shell: Shell, console: Console) -> list[Probe]:
    """Returns the probes of what Ray on this machine needs."""

    def leftovers() -> str:
        count = 0 if target.head.running() else len(target.head.leftovers())
        if count:
            raise _NotThere(f"{count} processes of a Ray that died still run", hint="./invokew doctor --fix")
        return "none"

    def end_leftovers() -> None:
        with console.work("leftovers", "processes of a Ray that died"):
            target.head.undo(lambda text: console.note("leftovers", text))

    return [
        *_ports(target),
        Probe("leftovers", leftovers, end_leftovers),
        _step(target.environment, shell, console, fix="./invokew doctor --fix"),
    ]


def _kind(target: Kind, shell: Shell, console: Console) -> list[Probe]:
    """Returns the probes of what a kind cluster needs."""
    fix = "./invokew doctor --fix --target kind"

    def docker() -> str:
        program = shutil.which("docker")
        if program is None:
            raise MissingProgram("the program docker, which kind calls, is not on the PATH", hint=fix)
        return program

    probes = [
        _step(Engine(shell), shell, console, fix=fix),
        Probe("docker", docker),
        _step(Inotify(), shell, console, fix=fix),
        *_ports(target),
        _step(target.environment, shell, console, fix=fix),
    ]
    if target.instance.source == "packages":
        probes.append(_step(debootstrap(shell), shell, console, fix=fix))
    return probes


def _step(step: Step, shell: Shell, console: Console, *, fix: str) -> Probe:
    """Returns the probe of a step; its repair makes the step ready, and waits until it is."""

    def look() -> str:
        status = step.check()
        if status.condition is not Condition.READY:
            raise _NotThere(f"{step.title}: {status.detail}", hint=fix)
        return status.detail

    def repair() -> None:
        engine.up([step], console, interrupt=shell.interrupt)

    return Probe(step.name, look, repair)
