"""`doctor`: what this machine lacks for its target, and the repair of what can be repaired."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from bootstrap import plan
from bootstrap import step as engine
from bootstrap.console import Console
from bootstrap.errors import MACHINE, RaysideError, UnknownTarget
from bootstrap.settings import Settings
from bootstrap.shell import Shell
from bootstrap.step import Condition, Step
from bootstrap.steps.engine import Engine
from bootstrap.steps.inotify import Inotify
from bootstrap.steps.machine import Machine, require_port, require_python

# `kind` can be looked at and mended before it can be brought up.
TARGETS = ("auto", "local", "kind")


@dataclass(frozen=True)
class Finding:
    """One thing looked at; `fix` is what to do, empty where nothing is to be done."""

    id: str
    ok: bool
    detail: str
    fix: str = ""


@dataclass(frozen=True)
class Probe:
    """How to look at one thing, and how to mend it where that is in our power.

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


def doctor(settings: Settings, console: Console, *, target: str | None, fix: bool) -> int:
    """Shows the findings, with `fix` after mending what can be mended; 0, or 3 where some is not ok.

    `target` is one of TARGETS, or None for that of the settings. Raises UnknownTarget.
    """
    if target not in (None, *TARGETS):
        raise UnknownTarget(f"unknown target {target!r}", hint=f"the targets are {', '.join(TARGETS)}")
    probes = _machine(settings) + (_kind(console) if target == "kind" else _local(settings, console))
    found = [probe.finding() for probe in probes]
    if fix:
        with console.progress():
            found = [_mended(probe, finding, console) for probe, finding in zip(probes, found, strict=True)]
    ok = all(finding.ok for finding in found)
    if console.as_json:
        console.document({"ok": ok, "findings": [asdict(finding) for finding in found]})
    else:
        _show(console, found)
    return 0 if ok else MACHINE


def _mended(probe: Probe, finding: Finding, console: Console) -> Finding:
    """The finding after its repair: looked at again, whatever the repair believes."""
    if finding.ok or probe.repair is None:
        return finding
    try:
        probe.repair()
    except RaysideError as error:
        return Finding(probe.id, False, error.message, error.hint)
    return probe.finding()


def _show(console: Console, found: Sequence[Finding]) -> None:
    console.table(
        ("finding", "ok", "detail"),
        [(finding.id, "yes" if finding.ok else "NO", finding.detail) for finding in found],
    )
    console.result()
    wrong = [finding for finding in found if not finding.ok]
    for finding in wrong:
        console.result(f"{finding.id}: {finding.fix}")
    if not wrong:
        console.result("Nothing is missing.")


def _machine(settings: Settings) -> list[Probe]:
    """What every target needs."""
    machine = Machine(settings, plan.choose(settings, Shell()).head.present, ports=())

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


def _local(settings: Settings, console: Console) -> list[Probe]:
    """What Ray on this machine needs."""
    shell = Shell()
    target = plan.choose(settings, shell)

    def port(setting: str) -> Callable[[], str]:
        def look() -> str:
            number = getattr(settings, setting)
            if target.head.present():
                return f"{number}, in use by the cluster"
            require_port(setting, number)
            return f"{number} is free"

        return look

    def leftovers() -> str:
        count = 0 if target.head.running() else len(target.head.leftovers())
        if count:
            raise _NotThere(f"{count} processes of a Ray that died still run", hint="./invokew doctor --fix")
        return "none"

    def end_leftovers() -> None:
        with console.work("leftovers", "processes of a Ray that died"):
            target.head.undo(lambda text: console.note("leftovers", text))

    return [
        Probe("dashboard-port", port("dashboard_port")),
        Probe("ray-client-port", port("ray_client_port")),
        Probe("leftovers", leftovers, end_leftovers),
        _step(target.environment, shell, console, fix="./invokew doctor --fix"),
    ]


def _kind(console: Console) -> list[Probe]:
    """What a kind cluster needs."""
    shell = Shell()
    return [
        _step(Engine(shell), shell, console, fix="./invokew doctor --fix --target kind"),
        _step(Inotify(), shell, console, fix="./invokew doctor --fix --target kind"),
    ]


def _step(step: Step, shell: Shell, console: Console, *, fix: str) -> Probe:
    """A step that is looked at, and whose repair is to make it ready and wait until it is."""

    def look() -> str:
        status = step.check()
        if status.condition is not Condition.READY:
            raise _NotThere(f"{step.title}: {status.detail}", hint=fix)
        return status.detail

    def repair() -> None:
        engine.up([step], console, interrupt=shell.interrupt)

    return Probe(step.name, look, repair)
