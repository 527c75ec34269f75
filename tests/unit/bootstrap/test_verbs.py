"""Tests what was typed: wrong values, Ctrl-C, and the command that an error says to type next."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from invoke.config import Config
from invoke.context import Context
from invoke.exceptions import Exit
from invoke.tasks import task

import tasks
from bootstrap.errors import EngineNotRunning, LowMemory
from bootstrap.instance import configured
from bootstrap.settings import ROOT, Settings
from bootstrap.targets import choice
from rayside.client import scripted
from rayside.console import Console
from rayside.errors import TARGET, InvalidArgument
from rayside.options import seconds
from rayside.own_folder import make_own
from rayside.ray.records import Job
from rayside.steps import graph
from rayside.steps.step import Status, missing, ready
from rayside.system.shell import Shell
from rayside.verbs import debugging
from rayside.verbs import relay_requests as jobs_verb
from rayside.verbs.relay_requests import Paused
from tasks import Verb
from tests.patience import PATIENCE


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Restores the signal handlers, which a verb sets for the process that it ends with."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def exit_code(verb: Any, **options: Any) -> int:
    with pytest.raises(Exit) as ended:
        verb(Context(), **options)
    return int(ended.value.code)


# --- numbers -----------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["abc", "", "nan", "-1", "-inf", "1e9", "5s"])
def test_what_is_no_number_of_seconds_names_the_option_and_what_to_do(value: str) -> None:
    with pytest.raises(InvalidArgument, match=f"--timeout is '{value}'") as caught:
        seconds("--timeout", value, most=86_400, hint="in seconds")
    assert caught.value.hint == "in seconds"


def test_seconds_may_have_a_fraction_and_zero_is_one_of_them_where_it_may_be() -> None:
    taken = {value: seconds("--timeout", value, hint="") for value in ("0", "0.5", 60, "inf")}
    assert taken == {"0": 0, "0.5": 0.5, 60: 60, "inf": math.inf}
    with pytest.raises(InvalidArgument):
        seconds("--timeout", "0", hint="", may_be_zero=False)


@pytest.mark.parametrize(
    ("verb", "options"),
    [
        (tasks.debug, {"timeout": "abc"}),
        (tasks.up, {"wait_for_engine": "abc"}),
        (tasks.prepare, {"wait_for_engine": "-1"}),
        (tasks.submit, {"debug": True, "attach_timeout": "abc"}),
    ],
)
def test_a_number_that_is_none_is_an_error_of_the_option(
    verb: Any, options: dict[str, Any], dashboard: ScriptedDashboard, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(verb, **options) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("error[invalid-argument]: --")
    assert "\n hint: " in shown


def test_invoke_itself_converts_no_value() -> None:
    """Invoke's own conversion ends in a traceback."""
    kinds = {
        (context.name, argument.name): argument.kind
        for context in tasks.namespace.to_contexts()
        for argument in context.args.values()
    }
    assert {option: kind for option, kind in kinds.items() if kind not in (str, bool, list)} == {}


# --- Ctrl-C ------------------------------------------------------------------------------


class ScriptedDashboard:
    """Has one job, whose output is followed until Ctrl-C."""

    def __init__(self) -> None:
        self.submitted: list[str] = []

    def follow(self, submission_id: str) -> Iterator[str]:
        yield "up\n"
        raise KeyboardInterrupt

    def job(self, submission_id: str) -> Job:
        assert submission_id in self.submitted
        return Job(submission_id, "01000000", "RUNNING", "python x.py", "", None, 0.0, {}, {})

    def jobs(self) -> list[Job]:
        return [self.job(submission_id) for submission_id in self.submitted]


@pytest.fixture
def dashboard(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ScriptedDashboard:
    """Provides the dashboard of a target that takes every job."""
    scripted_dashboard = ScriptedDashboard()
    (tmp_path / "token").write_text("secret")
    relay = {"token_file": tmp_path / "token", "ports": SimpleNamespace(relay=1)}
    instance = SimpleNamespace(namespace="default", folder=tmp_path, user="", **relay)
    access = SimpleNamespace(
        identity=instance,
        cluster="local",
        require=lambda: scripted_dashboard,
        submit=lambda job, submission_id: scripted_dashboard.submitted.append(submission_id),
    )
    target = SimpleNamespace(access=access, kubernetes=None, instance=instance)
    monkeypatch.setattr(choice, "existing", lambda settings, shell: target)
    return scripted_dashboard


def test_where_nothing_is_paused_yet_the_jobs_that_run_are_named(
    dashboard: ScriptedDashboard, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(jobs_verb, "paused", lambda access, everyone: Paused([]))
    jobs_verb.breakpoints(choice.existing(Settings(), Shell()).access, Console())
    assert "./invokew submit runs the example" in capsys.readouterr().out
    dashboard.submitted.append("main-1")
    jobs_verb.breakpoints(choice.existing(Settings(), Shell()).access, Console())
    assert "running: main-1. Next: ./invokew debug waits" in capsys.readouterr().out


def test_ctrl_c_while_a_submitted_job_is_waited_for_says_that_it_goes_on(
    dashboard: ScriptedDashboard, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(tasks.submit, wait=True) == 130
    (submission_id,) = dashboard.submitted
    shown = capsys.readouterr().err
    assert f"error[interrupted]: interrupted; the job {submission_id} goes on\n" in shown
    assert f" hint: ./invokew logs --follow --job {submission_id}\n" in shown
    assert "run the command again" not in shown
    assert exit_code(tasks.submit, wait=True, json=True) == 130
    document = json.loads(capsys.readouterr().out)
    assert document["submission_id"] == dashboard.submitted[1]
    assert document["error"]["id"] == "interrupted"


def test_ctrl_c_before_the_submission_says_to_run_the_command_again(
    dashboard: ScriptedDashboard, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(choice, "existing", interrupted)
    assert exit_code(tasks.submit, wait=True, json=True) == 130
    document = json.loads(capsys.readouterr().out)
    error = {"id": "interrupted", "message": "interrupted", "hint": "run the command again to go on"}
    assert document == {"error": error}


def test_ctrl_c_ends_followed_logs(dashboard: ScriptedDashboard, capsys: pytest.CaptureFixture[str]) -> None:
    dashboard.submitted.append("mine")
    assert exit_code(tasks.logs, follow=True) == 130
    assert capsys.readouterr() == ("up\n", "")


def test_ctrl_c_in_a_scripted_debug_prints_what_was_recorded_and_says_that_the_tasks_go_on(
    dashboard: ScriptedDashboard, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    document = {"stopped": [{"task": "f"}], "job": {"submission_id": "mine", "status": "RUNNING"}}

    def interrupted(*_: object, **__: object) -> None:
        raise scripted.Interruption(document)

    monkeypatch.setattr(scripted, "run_sync", interrupted)
    dashboard.submitted.append("mine")
    assert exit_code(tasks.debug, evaluate=["x"]) == 130
    out, err = capsys.readouterr()
    assert json.loads(out) == document
    assert err == "interrupted; the tasks go on\n"


@pytest.mark.parametrize("attached", [True, False])
def test_what_was_attached_to_is_not_said_to_be_out_of_reach(
    attached: bool,
    dashboard: ScriptedDashboard,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(debugging, "is_open", lambda of, job: attached)
    monkeypatch.setattr(scripted, "run_sync", lambda *_, **__: {})
    dashboard.submitted.append("mine")
    assert exit_code(tasks.debug, break_=[f"{__file__}:1"], json=True) == 0
    assert ("was not submitted with --debug" in capsys.readouterr().err) is not attached


# --- status ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Silent:
    """A step whose check ends in an error."""

    name: str
    title: str = "what is silent"
    needs: tuple[str, ...] = ()

    def check(self) -> Status:
        raise EngineNotRunning("no answer", hint="start it")


@pytest.fixture
def silent_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    target = SimpleNamespace(
        instance=SimpleNamespace(target="kind", source="packages", folder=Path("/nowhere")),
        access=SimpleNamespace(urls=dict),
        steps=lambda: [Silent("engine"), Silent("memory")],
    )
    monkeypatch.setattr(choice, "choose", lambda settings, shell: target)


@pytest.mark.usefixtures("silent_engine")
def test_status_keeps_an_errors_id_and_shows_each_hint_once(capsys: pytest.CaptureFixture[str]) -> None:
    tasks.status(Context(), json=True)
    engine, _ = json.loads(capsys.readouterr().out)["steps"]
    assert engine == {
        **{"name": "engine", "condition": "missing", "detail": "no answer"},
        "error": {"id": "engine-not-running", "message": "no answer", "hint": "start it"},
    }
    tasks.status(Context())
    shown = capsys.readouterr().out
    assert shown.endswith("\nengine, memory: start it\nNot ready. Next: ./invokew up\n")


# --- several clusters --------------------------------------------------------------------


def state(folder: Path, *names: str) -> str:
    """The text of an environment variable: a state folder with clusters of these names, which are down."""
    for name in names:
        instance = configured(Settings(state_folder=folder, name=name), "local")
        make_own(instance.folder)
        instance.record.write_text(instance.document())
    return str(folder)


def test_list_has_each_cluster_as_its_record_says_and_a_damaged_one_with_its_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # The settings are for another cluster.
    settings = {"target": "kind", "namespace": "ours", "dashboard_port": 29000}
    context = Context(Config({"rayside": {**settings, "state_folder": str(tmp_path)}}))
    tasks.list_clusters(context)
    assert capsys.readouterr().out == "There is no cluster. Next: ./invokew up\n"
    state(tmp_path, "damaged", "demo")
    (tmp_path / "damaged" / "instance.json").write_text("{")
    monkeypatch.setattr(graph, "check", lambda steps: {"one": ready()})
    tasks.list_clusters(context, json=True)
    damaged, demo = json.loads(capsys.readouterr().out)
    assert (damaged["name"], damaged["target"], damaged["ready"]) == ("damaged", None, False)
    assert damaged["error"]["id"] == "invalid-setting"
    assert (demo["target"], demo["ready"]) == ("local", True)
    assert demo["urls"].keys() == {"workspace", "dashboard", "relay"}
    assert demo["urls"]["dashboard"].endswith(":8265")
    tasks.list_clusters(context)
    shown = capsys.readouterr().out
    assert [line.split()[:3] for line in shown.splitlines()[1:3]] == [
        ["damaged", "?", "no"],
        ["demo", "local", "yes"],
    ]
    assert "./invokew down --name damaged removes the cluster and the file" in shown


def test_a_name_that_no_cluster_has_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = {"state_folder": state(tmp_path, "demo"), "target": "local"}
    vs_code = partial(tasks.debug, launch_json=True)
    for verb in (tasks.status, tasks.breakpoints, tasks.logs, tasks.open_workspace, tasks.submit, vs_code):
        with pytest.raises(Exit) as ended:
            verb(Context(Config({"rayside": settings})), name="nobody")
        assert ended.value.code == TARGET
        assert capsys.readouterr().err.splitlines() == [
            "error[not-running]: there is no cluster nobody",
            " hint: ./invokew up --name nobody makes it; there are demo",
        ]
    assert not (tmp_path / ".vscode").exists()
    tasks.down(Context(Config({"rayside": settings})), name="nobody")
    assert capsys.readouterr().out.startswith("There is no cluster nobody.")
    assert (tmp_path / "demo" / "instance.json").exists()


def test_a_wrong_extension_folder_stops_no_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "nowhere"
    settings = {
        **{"target": "local", "vsix_folder": str(folder)},
        **{"state_folder": state(tmp_path / "state", "rayside"), "cache_folder": str(tmp_path / "cache")},
    }
    context = Context(Config({"rayside": settings}))
    tasks.list_clusters(context, json=True)
    (listed,) = json.loads(capsys.readouterr().out)
    assert (listed["name"], listed["target"], "error" in listed) == ("rayside", "local", False)
    tasks.status(context, json=True)
    steps = {step["name"]: step for step in json.loads(capsys.readouterr().out)["steps"]}
    assert steps["extensions"]["error"]["id"] == "invalid-setting"
    assert steps["extensions"]["detail"] == f"vsix_folder is {folder}, and there is no such folder"
    assert steps["state-folder"]["detail"]
    tasks.down(context)
    assert capsys.readouterr().out.startswith("Everything is removed")
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("name", "options"), [(None, " --name demo"), ("other", " --name other"), ("rayside", "")]
)
def test_what_is_advised_is_for_the_cluster_that_the_option_names_or_else_the_setting(
    name: str | None,
    options: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = {"state_folder": state(tmp_path, "rayside", "demo", "other"), "name": "demo"}
    context = Context(Config({"rayside": settings}))
    monkeypatch.setattr(graph, "check", lambda steps: {"one": missing("not running")})
    tasks.status(context, name=name)
    assert capsys.readouterr().out.endswith(f"\nNot ready. Next: ./invokew up{options}\n")

    def refusing(steps: object) -> None:
        raise LowMemory("0.1 GiB is free", hint="end something, then ./invokew up")

    monkeypatch.setattr(graph, "check", refusing)
    with pytest.raises(Exit):
        tasks.status(context, name=name)
    assert capsys.readouterr().err.endswith(f"\n hint: end something, then ./invokew up{options}\n")


def test_every_verb_that_takes_a_name_is_advised_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    verbs = {context.name for context in tasks.namespace.to_contexts() if "--name" in context.flags}
    for verb in verbs - {"bench"}:
        Console(cluster="demo").result(f"./invokew {verb} is next")
        assert capsys.readouterr().out == f"./invokew {verb} --name demo is next\n"


# --- what to type next -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        (["invoke", "--search-root", "/a b", "up", "--target", "local"], "./invokew up --target local"),
        (
            ["invoke", "up", "--source=upstream", "--no-example"],
            "./invokew up --source=upstream --no-example",
        ),
        (["invoke", "up"], "./invokew up"),
        (["pytest"], "./invokew up"),
    ],
)
def test_the_command_that_goes_on_has_the_arguments_that_were_given(
    typed: list[str], shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @task(klass=Verb)
    def up(context: Context) -> None:
        raise LowMemory("0.1 GiB is free", hint="end something")

    monkeypatch.setattr(sys, "argv", typed)
    assert exit_code(up) == 3
    assert capsys.readouterr().err.splitlines()[-1] == f" then: {shown}"


def test_the_name_of_a_benchmark_is_no_clusters(capsys: pytest.CaptureFixture[str]) -> None:
    @task(klass=Verb)
    def bench(context: Context, name: str = "local") -> None:
        raise LowMemory("0.1 GiB is free", hint="./invokew down frees some")

    assert exit_code(bench, name="relay") == 3
    assert capsys.readouterr().err.splitlines()[-1] == " hint: ./invokew down frees some"
    assert exit_code(tasks.bench, name="demo") == 2
    assert "there is no benchmark 'demo'" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["--list", "list --json", "status --json", "down"])
def test_a_verb_on_local_does_not_wait_for_the_package_of_kubernetes(words: str, tmp_path: Path) -> None:
    """Importing it takes half a second."""
    tmp_path.chmod(0o700)
    settings = {"INVOKE_RAYSIDE_TARGET": "local", "INVOKE_RAYSIDE_STATE_FOLDER": str(tmp_path)}
    python = [sys.executable, "-I", "-X", "importtime", "bootstrap/entry.py", "--search-root", str(ROOT)]
    ran = subprocess.run(
        [*python, *words.split()],
        cwd=ROOT,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in ran.stderr.splitlines()}
    assert "bootstrap" in imported
    assert "kubernetes" not in imported


@pytest.mark.parametrize("verb", [each for each in vars(tasks).values() if isinstance(each, Verb)], ids=str)
def test_h_asks_each_verb_for_its_help(verb: Verb) -> None:
    assert not [argument for argument in verb.get_arguments() if "h" in argument.names]
