"""`doctor`: what this machine lacks for its target, and the repair of what can be repaired."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from bootstrap import plan
from bootstrap.console import Console
from bootstrap.errors import MACHINE, RaysideError
from bootstrap.settings import Settings
from bootstrap.shell import Shell
from bootstrap.step import Condition
from bootstrap.steps.machine import Machine, require_port, require_python


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
    """

    id: str
    look: Callable[[], str]
    repair: Callable[[], None] | None = None

    def finding(self) -> Finding:
        try:
            return Finding(self.id, True, self.look())
        except RaysideError as error:
            fix = "./invokew doctor --fix" if self.repair else error.hint
            return Finding(self.id, False, error.message, fix)


class _NotThere(RaysideError):
    id, exit_code = "not-there", MACHINE


def doctor(settings: Settings, console: Console, *, fix: bool) -> int:
    """Shows the findings, with `fix` after mending what can be mended; 0, or 3 where some is not ok."""
    probes = _probes(settings, Shell(), console)
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
        with console.work(probe.id, f"repair of {probe.id}"):
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
        console.result("Nothing is missing. Next: ./invokew up")


def _probes(settings: Settings, shell: Shell, console: Console) -> list[Probe]:
    target = plan.choose(settings, shell)
    machine = Machine(settings, target.head.present, ports=())
    environment = target.environment

    def system() -> str:
        name = f"{platform.system()} on {platform.machine()}"
        if platform.system() not in ("Linux", "Darwin"):
            raise _NotThere(f"{name} is not supported", hint="use Linux, macOS, or Windows through WSL 2")
        return name

    def memory() -> str:
        return "in use by the cluster" if machine.present() else f"{machine.require_memory():.1f} GiB free"

    def disk() -> str:
        return f"{machine.require_disk(settings.cache_folder):.0f} GiB free at {settings.cache_folder}"

    def port(setting: str) -> Callable[[], str]:
        def look() -> str:
            number = getattr(settings, setting)
            if target.head.present():
                return f"{number}, in use by the cluster"
            require_port(setting, number)
            return f"{number} is free"

        return look

    def ray_environment() -> str:
        status = environment.check()
        if status.condition is not Condition.READY:
            raise _NotThere(f"{environment.title}: {status.detail}", hint="./invokew prepare")
        return status.detail

    def leftovers() -> str:
        count = 0 if target.head.running() else len(target.head.leftovers())
        if count:
            raise _NotThere(f"{count} processes of a Ray that died still run", hint="./invokew down")
        return "none"

    def make_environment() -> None:
        environment.apply(lambda text: console.note("ray-environment", text))

    return [
        Probe("system", system),
        Probe("python", require_python),
        Probe("memory", memory),
        Probe("disk", disk),
        Probe("dashboard-port", port("dashboard_port")),
        Probe("ray-client-port", port("ray_client_port")),
        Probe("leftovers", leftovers, lambda: target.head.undo(lambda text: console.note("leftovers", text))),
        Probe("ray-environment", ray_environment, make_environment),
    ]
