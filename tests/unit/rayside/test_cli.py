"""Tests the command line `rayside`, up to the processes that it starts."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rayside import cli, run_program
from rayside.cli_commands import COMMANDS
from rayside.client.scripted import Interruption
from rayside.client.session import AttachOptions
from rayside.completion import script
from rayside.connection.instance import Instance, Ports
from rayside.console import PACKAGE, Console
from rayside.dap.client import Client
from rayside.debugger_files import ROOT
from rayside.errors import MissingProgram
from rayside.settings import Settings
from rayside.signals import signals_noticed
from rayside.verbs import connecting, job_output
from tests.patience import PATIENCE


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "main.py").write_text("x = 1\n")
    monkeypatch.chdir(tmp_path)
    for name in ("RAY_ADDRESS", run_program._IN_JOB):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(run_program, "require_ray", lambda: None)
    monkeypatch.setenv("INVOKE_RAYSIDE_STATE_FOLDER", str(tmp_path / "state"))
    return tmp_path


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["run"], "no program is named"),
        (["run", "--brake", "main.py"], "unrecognized arguments: --brake"),
        (["run", "nothing.py"], "there is no file nothing.py"),
        (["run", "-m", "nothing.here"], "there is no module nothing.here"),
        (["run", "--break", "main.py", "main.py"], "--break main.py is not FILE:LINE"),
        (["run", "--break", "main.py:1:x =", "main.py"], "the condition 'x =' is no Python expression"),
        (["run", "--listen", "70000", "main.py"], "--listen 70000 is no port"),
        (["run", "--listen", "0", "--evaluate", "x", "main.py"], "--listen leaves breakpoints and values"),
        (["run", "--timeout", "soon", "main.py"], "--timeout is 'soon'"),
        (["run", "--stops", "0", "main.py"], "--stops is '0'"),
        (["run", "--evaluate", "x +", "main.py"], "--evaluate 'x +': it is no Python expression"),
        (["compare"], "the following arguments are required: EXPR"),
        (["logs", "j1", "--job", "j2"], "j1 and --job j2 both name a job"),
        (["mcp", "--look", "--act"], "--look and --act exclude each other"),
        (["completion", "tcsh"], "no completion for 'tcsh'"),
    ],
    ids=str,
)
def test_what_is_typed_wrong_is_said(words: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 2
    assert f"error[invalid-argument]: {why}" in capsys.readouterr().err


def test_without_the_extra_an_agents_server_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert cli.main(["mcp"]) == 3
    error = capsys.readouterr().err
    assert "error[missing-program]: the Python package `mcp` is not installed" in error
    assert 'hint: pip install "rayside[mcp]" brings it' in error


@pytest.mark.parametrize(
    ("words", "why"),
    [(["nothing.py"], "there is no file nothing.py"), (["--brake"], "unrecognized arguments: --brake")],
)
def test_an_error_is_a_document_where_json_is_asked_for(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["run", "--json", *words]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["message"] == why


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("RAY_ADDRESS", "ray://head:10001", "RAY_ADDRESS leads to a Ray Client server"),
        (run_program._IN_JOB, "{}", "this is a job of Ray already"),
    ],
)
def test_where_a_program_can_t_be_run_is_said(
    name: str, value: str, why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, value)
    assert cli.main(["run", "main.py"]) == 2
    assert why in capsys.readouterr().err


def test_the_options_after_the_program_are_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[run_program.Program] = []

    def run(program: run_program.Program, console: Console) -> int:
        given.append(program)
        return 7

    monkeypatch.setattr(run_program, "run", run)
    assert cli.main(["run", "--post-mortem", "main.py", "--json", "-m", "3"]) == 7
    assert (given[0].name, given[0].arguments) == ("main.py", ["--json", "-m", "3"])
    assert given[0].post_mortem and not given[0].is_module


@pytest.mark.parametrize("words", [["logs", "j1"], ["logs", "--job", "j1"]])
def test_a_job_is_named_with_or_without_its_option(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    named: list[str | None] = []

    def logs(access: None, console: Console, *, job: str | None, follow: bool, ray: bool) -> int:
        named.append(job)
        return 0

    monkeypatch.setattr(connecting, "access", lambda settings, console: None)
    monkeypatch.setattr(job_output, "logs", logs)
    assert cli.main(words) == 0
    assert named == ["j1"]


def completed(words: str, folder: Path) -> list[str]:
    """Returns what bash offers for the last word; `default` where it offers files besides."""
    line = words.split(" ")
    code = (
        f'{script("bash", COMMANDS)}\ncompopt() {{ echo "compopt $*"; }}\n'
        f"COMP_WORDS=({' '.join(word or repr('') for word in line)}) COMP_CWORD={len(line) - 1}\n"
        '_rayside; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    return subprocess.check_output(["bash", "-c", code], cwd=folder, text=True).split("\n")[:-1]


def test_tab_offers_no_file_where_an_option_takes_none(folder: Path) -> None:
    assert completed("rayside logs --job ", folder) == ["compopt +o default", ""]
    assert completed("rayside debug --break ", folder) == [""]
    assert completed("rayside logs --jo", folder) == ["--job"]
    lines = script("fish", COMMANDS).splitlines()
    (job,) = [line for line in lines if "from logs'" in line and " -l job " in line]
    assert " -x " in job
    (place,) = [line for line in lines if "from debug'" in line and " -l break " in line]
    assert " -r " in place


@pytest.mark.usefixtures("python_signals")
@pytest.mark.parametrize("while_it_is_recorded", [True, False])
def test_an_interrupted_program_shows_what_was_recorded_of_it(
    while_it_is_recorded: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    document = {"stopped": [{"task": "f"}], "job": {"submission_id": None, "status": "RUNNING"}}

    def run_sync(*_: object, **how: object) -> dict[str, Any]:
        assert how["most"] == 2
        if while_it_is_recorded:
            raise Interruption(document)
        threading.Timer(0.1, signal.raise_signal, [signal.SIGINT]).start()
        return document

    monkeypatch.setattr(run_program, "run_sync", run_sync)
    program = run_program.Program("main.py", stops=2)
    running = run_program._Run(program, Console(as_json=True), Path())
    with subprocess.Popen(["sleep", "60"]) as process, signals_noticed():
        try:
            options = AttachOptions(partial(Client.connect, "127.0.0.1", 1), "secret")
            assert running._scripted(process, options) == 130
        finally:
            process.kill()
    assert json.loads(capsys.readouterr().out) == document


def test_ctrl_c_shows_no_traceback_of_the_program(folder: Path) -> None:
    (folder / "main.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n")
    words = ["python -m rayside.worker", "--told", str(folder / "told.json"), "main.py"]
    code = (
        "import runpy, sys\nfrom rayside.worker import run_driver\n"
        f"run_driver.begin = lambda *_, **__: None\nsys.argv = {words}\n"
        "runpy.run_module('rayside.worker', run_name='__main__')"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


def test_a_program_is_asked_to_end_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # A second signal would break off what Ray does at the end of a driver.
    sent: list[int] = []
    running = run_program._Run(run_program.Program("main.py"), Console(), Path())
    with subprocess.Popen(["sleep", "60"]) as process:
        monkeypatch.setattr(process, "send_signal", sent.append)
        running._ask_to_end(process)
        running._ask_to_end(process)
        os.kill(process.pid, signal.SIGKILL)
    assert sent == [signal.SIGINT]
    assert capsys.readouterr().err == "the program is ended\n"


class TestRay:
    @pytest.fixture
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        return tmp_path

    @pytest.mark.parametrize(
        ("has", "version", "why", "hint"),
        [
            ([], "", "has no Ray", "-m pip install 'ray[default]'"),
            (["ray"], "2.38.1", "Ray 2.38.1 is older than 2.39", "-m pip install 'ray[default]>=2.39'"),
            (["ray", "aiohttp"], "2.60.0", "this Ray has no dashboard", "-m pip install 'ray[default]'"),
            (["ray", *run_program._OF_DASHBOARD], "2.60.0", "", ""),
        ],
        ids=["none", "old", "without default", "whole"],
    )
    def test_a_python_whose_ray_can_t_be_debugged_is_told_what_installs_it(
        self, has: list[str], version: str, why: str, hint: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.undo()
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: name if name in has else None)
        monkeypatch.setattr(run_program, "_version", lambda: version)
        if not why:
            run_program.require_ray()
            return
        with pytest.raises(MissingProgram) as error:
            run_program.require_ray()
        assert why in error.value.message
        assert error.value.hint.endswith(hint)


@pytest.mark.parametrize(
    ("words", "error", "why"),
    [
        (["connect"], "invalid-setting", "no Ray cluster was named"),
        (["connect", "--address", "head"], "invalid-setting", "address is 'head'"),
        (["connect", "--ssh", "a", "--context", "b"], "invalid-setting", "are two ways to a Ray"),
        (["debug"], "not-running", "no Ray cluster is connected"),
        (["status", "--name", "demo"], "not-running", "no Ray cluster demo is connected"),
    ],
    ids=str,
)
def test_what_leads_to_no_cluster_is_said(
    words: list[str], error: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*words]) == {"invalid-setting": 2, "not-running": 4}[error]
    shown = capsys.readouterr().err
    assert f"error[{error}]: " in shown
    assert why in shown
    assert "./invokew" not in shown


def test_a_word_too_many_leads_to_the_help_of_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["logs", "train-1", "train-2"]) == 2
    shown = capsys.readouterr().err
    assert "unrecognized arguments: train-2" in shown
    assert "rayside logs --help shows the usage" in shown


def test_each_command_explains_itself_and_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    for command in COMMANDS:
        with pytest.raises(SystemExit) as ended:
            cli.main([command.name, "-h"])
        assert ended.value.code == 0
        shown = capsys.readouterr().out
        assert shown.startswith(f"usage: rayside {command.name}")
        assert all(f"--{option.name}" in shown for option in command.all_options), shown


@pytest.mark.parametrize(
    ("advice", "said"),
    [
        ("./invokew debug --stacks shows it", "rayside stacks --name demo shows it"),
        ("ask first; ./invokew up repairs it", "ask first; rayside connect --name demo repairs it"),
        ("./invokew doctor --fix", "install it"),
        ("./invokew diagnose --job a says more", "rayside logs --name demo --job a says more"),
        ("./invokew upgrade", "rayside upgrade"),
    ],
)
def test_the_commands_that_are_advised_are_those_of_the_package(advice: str, said: str) -> None:
    console = Console(cluster="demo", program=PACKAGE)
    assert console.for_cluster(advice) == said


def test_help_says_how_vs_code_gets_the_extension(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert "./invokew vsix makes it, and code --install-extension ray-breakpoints.vsix installs it" in told


def test_an_editors_submit_runs_nothing_of_the_folder_that_it_is_run_in(folder: Path) -> None:
    settings = Settings(state_folder=folder / "state", cache_folder=folder / "cache")
    ports = Ports(8265, 10001, 5678, 8443)
    identity = Instance("rayside", "cluster", "default", "", folder / "state" / "rayside", ports)
    command = connecting._cluster_file(settings, identity).submit
    (folder / "rayside").mkdir()
    for name in ("rayside/__init__.py", "rayside/cli.py", "argparse.py"):
        (folder / name).write_text("raise SystemExit('of the folder')\n")
    environment = {"PATH": os.defpath, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, "--help"], cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE
    )
    assert (done.returncode, done.stdout[:21]) == (0, "usage: rayside submit"), done.stderr
