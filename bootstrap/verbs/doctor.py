"""Verb `doctor`: checks this machine for its target, and repairs it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bootstrap.codespaces import Codespace
from bootstrap.given_settings import parse
from bootstrap.labs.lesson import PROGRAMS
from bootstrap.settings import Settings
from bootstrap.steps.debian_program import PACKAGES, DebianProgram, program
from bootstrap.steps.engine import installable
from bootstrap.steps.ports_private import PortsPrivate
from bootstrap.targets import preparation
from rayside.console import Console
from rayside.errors import MACHINE, RaysideError
from rayside.steps import graph, step
from rayside.steps.step import Appliable, Condition, Status, Step
from rayside.system.shell import Shell


def doctor(
    settings: Settings, console: Console, *, target: str | None = None, fix: bool = False, tests: bool = False
) -> int:
    """Shows the findings, with `fix` after repairs; returns 0, or 3 if one is not ok.

    `target` overrides the settings' target; with `auto` an engine that can be installed counts as a running
    one. `tests` also checks the needs of the test suites.
    """
    by_default = settings.target
    if target is not None:
        settings = parse({**vars(settings), "target": target}, {})
    shell = Shell()
    chosen = preparation.for_machine(settings, shell)
    if settings.target == "auto" and not chosen.present() and installable():
        # An engine can be installed here, and `auto` would use it.
        chosen = preparation.for_machine(replace(settings, target="kind"), shell)
    steps = chosen.machine()
    if codespace := Codespace.here():
        ports = chosen.instance.ports
        paths = {ports.workspace: "/robots.txt", ports.dashboard: "/", ports.relay: None}
        steps.append(PortsPrivate(codespace, paths))
    if tests:
        steps += [program(shell, name) for name in PACKAGES if name != "debootstrap"]
        steps += [DebianProgram(shell, name, packages) for name, packages in PROGRAMS.items()]
    statuses = graph.check(steps)
    if fix:
        with console.progress():
            for each in steps:
                if statuses[each.name].condition is not Condition.READY:
                    statuses[each.name] = _repaired(each, console, shell)
    on = chosen.instance.target
    named = "" if on == by_default else f" --target {on}"
    command = f"./invokew doctor --fix{named}{' --tests' if tests else ''}"
    findings = [_finding(each, statuses[each.name], command) for each in steps]
    ok = all(finding["ok"] for finding in findings)
    if console.as_json:
        console.document({"ok": ok, "findings": findings})
    _show(console, findings)
    return 0 if ok else MACHINE


def _repaired(each: Step, console: Console, shell: Shell) -> Status:
    """Applies a step if possible, and returns its new status.

    It is checked again in any case: an earlier step may have repaired this one, too.
    """
    try:
        if isinstance(each, Appliable):
            graph.up([each], console, interrupt=shell.interrupt)
    except RaysideError as error:
        return step.failed(error)
    return graph.status_of(each)


def _finding(each: Step, status: Status, command: str) -> dict[str, Any]:
    """Returns the finding of a step; `fix` is the thing to do, or empty."""
    ok = status.condition is Condition.READY
    detail = status.detail if ok or status.error else f"{each.title}: {status.detail}"
    fix = "" if ok else status.error.hint if status.error else command
    return {"id": each.name, "ok": ok, "detail": detail, "fix": fix}


def _show(console: Console, findings: list[dict[str, Any]]) -> None:
    console.table(
        ("finding", "ok", "detail"),
        [(finding["id"], "yes" if finding["ok"] else "NO", finding["detail"]) for finding in findings],
    )
    console.result()
    wrong = [finding for finding in findings if not finding["ok"]]
    for finding in wrong:
        console.result(f"{finding['id']}: {finding['fix']}")
    if not wrong:
        console.result("Nothing is missing. Next: ./invokew up")
