"""Tests the variable by which processes of a debugged job know how to open a debugger's port."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import rayside
from bootstrap.steps.local_ray import START
from rayside.worker import attach, children, debug_config, driver
from rayside.worker.debug_config import VARIABLE, Config

FULL = Config(
    attach_timeout=2.5,
    requirements=("debugpy==1",),
    carried=2,
    given=("pip",),
    given_env_vars=("WORD", '"started": true, "parents": "x'),
    setup_hook="own.hook",
    started=False,
    waited_until=1.8e9,
    parents="rayside-2-b:rayside-1-a",
)


def test_what_was_written_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for written in (Config(), FULL):
        monkeypatch.setenv(VARIABLE, written.text())
        assert Config.read() == written
    monkeypatch.delenv(VARIABLE)
    assert Config.read() == Config()
    # A newer Rayside's has more.
    monkeypatch.setenv(VARIABLE, '{"carried": 1, "more": [{}]}')
    assert Config.read() == Config(carried=1)


def test_the_file_of_pythons_start_reads_two_fields_as_text() -> None:
    """No name of the user's is taken for one of them."""
    start: dict[str, Any] = {"__name__": "start", "__file__": str(START)}
    exec(compile(START.read_text().partition("# Some Pythons read")[0], START, "exec"), start)
    started, parents = start["_STARTED"], start["_PARENTS"]
    assert started not in FULL.text()
    assert started in Config(**{**vars(FULL), "started": True}).text()
    assert FULL.text().partition(parents)[2].partition('"')[0] == FULL.parents
    assert parents not in Config(**{**vars(FULL), "parents": ""}).text()


WRONG: dict[str, list[Any]] = {
    "attach_timeout": ["60", None, True, -1, 86_401, float("nan"), float("inf")],
    "requirements": ["debugpy", [1], {}],
    "carried": [-1, 1.5, 17, True],
    "given": [[None]],
    "setup_hook": [7, None],
    "started": [1, "true"],
    "waited_until": ["inf", float("inf"), -1],
    "parents": [["a"]],
}
MALFORMED = [
    *("", "x", "[" * 100_000, "[60]", "7", '{"given": ["' + "x" * 200_000 + '"]}'),
    *(json.dumps({field: value}) for field, values in WRONG.items() for value in values),
]


@pytest.mark.parametrize("text", MALFORMED, ids=range(len(MALFORMED)))
def test_a_malformed_one_is_one_line_and_no_debugger(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = {"env_vars": {VARIABLE: text, "WORD": "x"}, "py_modules": ["gcs://hook.zip"]}
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", json.dumps({"runtime_env": job, "metadata": {}}))
    monkeypatch.setenv(VARIABLE, text)
    attach.setup()
    said = capsys.readouterr().err.splitlines()
    assert driver.on_init(job) == job
    said += capsys.readouterr().err.splitlines()
    assert [line.partition(VARIABLE)[0] for line in said] == [
        "rayside: no debugger in this process: ",
        "rayside: no debugger in this job: ",
    ]
    assert all(len(line) < 200 for line in said)
    assert VARIABLE not in os.environ


def test_a_job_and_its_debugger_leave_each_other_what_is_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv(VARIABLE, FULL.text())
    children.Children({}).announce()
    own, *others = Config.read().parents.split(":")
    assert own.startswith(f"rayside-{os.getpid()}-") and others == FULL.parents.split(":")
    debug_config.forget()
    assert Config.read() == Config(parents=":".join([own, *others]))
    for _ in range(9):
        children.Children({}).announce()
    assert len(Config.read().parents.split(":")) == 4
    monkeypatch.setenv(VARIABLE, Config(attach_timeout=1).text())
    debug_config.forget()
    assert VARIABLE not in os.environ
    # A plain `breakpoint()` opens its port also where the variable is malformed.
    monkeypatch.setenv(VARIABLE, "[")
    children.Children({}).announce()
    assert Config.read().parents


def test_a_driver_by_hand_waits_as_long_as_it_was_told_and_brings_the_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in driver.OURS:
        monkeypatch.delenv(name, raising=False)
    hooked: list[Config] = []

    def hook(env: dict[str, Any], config: Config) -> dict[str, Any]:
        hooked.append(config)
        return env

    monkeypatch.setattr(driver, "hooked", hook)
    driver.debug(7)
    assert os.environ["RAY_RUNTIME_ENV_HOOK"] == "rayside.worker.driver.on_init_by_hand"
    # The relay imports `rayside` in the workers.
    assert driver.on_init_by_hand(None)["py_modules"] == [str(Path(rayside.__file__).parent)]
    assert hooked == [Config(attach_timeout=7)]
    assert not set(driver.OURS) & set(os.environ), "programs that this one starts may not have the package"
    driver.debug()
    monkeypatch.setenv(VARIABLE, "[")
    assert driver.on_init_by_hand({"pip": ["x"]}) == {"pip": ["x"]}
    assert capsys.readouterr().err.startswith("rayside: no debugger in this job: ")
