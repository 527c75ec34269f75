"""Tests what `submit --debug` adds to a job's runtime_env, and how the hook removes it in the driver."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rayside.ray import jobs
from rayside.ray.debug import RAISED, REQUIREMENTS, Debug
from rayside.ray.metadata import DEBUG, PY_MODULES, WORKING_DIR
from rayside.worker import driver
from rayside.worker.debug_config import VARIABLE, Config, with_package

DEBUGPY = "debugpy==1.8.22"


@pytest.mark.parametrize(
    ("runtime_env", "expected"),
    [
        ({}, {"pip": [DEBUGPY]}),
        ({"pip": ["numpy"]}, {"pip": ["numpy", DEBUGPY]}),
        ({"pip": ["numpy", "Debugpy>=1.8"]}, {"pip": ["numpy", "Debugpy>=1.8"]}),
        (
            {"pip": {"packages": ["numpy"], "pip_check": False}},
            {"pip": {"packages": ["numpy", DEBUGPY], "pip_check": False}},
        ),
        ({"uv": ["numpy"]}, {"uv": ["numpy", DEBUGPY]}),
        (
            {"conda": {"dependencies": ["numpy", "pip", {"pip": ["x"]}]}},
            {"conda": {"dependencies": ["numpy", "pip", {"pip": ["x", DEBUGPY]}]}},
        ),
        ({"conda": {"dependencies": []}}, {"conda": {"dependencies": ["pip", {"pip": [DEBUGPY]}]}}),
        ({"conda": "some-name"}, {"conda": "some-name"}),
    ],
)
def test_debugpy_joins_what_the_user_installs(runtime_env: dict[str, Any], expected: dict[str, Any]) -> None:
    assert with_package(runtime_env, DEBUGPY) == expected


def test_debugpy_joins_a_requirements_file(tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text("--index-url https://pypi.example\nnumpy\n")
    joined = ["--index-url https://pypi.example", "numpy", DEBUGPY]
    assert with_package({"pip": str(file)}, DEBUGPY) == {"pip": joined}


@pytest.fixture
def code(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("")
    return tmp_path


def submission(
    code: Path, entrypoint: str = "python train.py", *, debug: Debug | None = None, **env: Any
) -> jobs.Submission:
    job = jobs.prepare(working_dir=str(code), py_modules=[], entrypoint=entrypoint, debug=debug or Debug())
    return jobs.Submission(job.entrypoint, job.working_dir, (), env, debug=job.debug)


IMPORTS_IT = (
    *("python train.py", "/opt/ray/bin/python3.11 -u -m train --rate 3"),
    *("python train.py > out.txt && echo done", "cd x; python train.py"),
    *("sh -c 'python train.py'", '"/opt/my ray/bin/python" train.py'),
    "echo 'import ray; ray.init()' | python",
    "export PYTHONPATH=$PWD/src:$PYTHONPATH\npython train.py",
    *('PYTHONPATH="src:${PYTHONPATH}" python train.py', "echo $PYTHONPATH; python train.py"),
    "python -W error::EncodingWarning train.py",
)
MAY_NOT_IMPORT_IT = (
    *("python prepare.py && python -I train.py", "sh -c 'python -E train.py'"),
    *("export PYTHONPATH=src\npython train.py", "unset PYTHONPATH; python train.py"),
    *("python -I train.py", "python -uE train.py", "python -X dev -E train.py"),
    *("PYTHONPATH=src python train.py", "uv run python train.py", "bash run.sh"),
    "mypython train.py",
)


@pytest.mark.parametrize(
    ("entrypoint", "driver_too"),
    [*((text, True) for text in IMPORTS_IT), *((text, False) for text in MAY_NOT_IMPORT_IT)],
)
def test_the_driver_is_debugged_if_it_imports_the_hook(code: Path, entrypoint: str, driver_too: bool) -> None:
    job = submission(code, entrypoint)
    assert job.debugs_driver is driver_too
    environment = job.environment()
    assert ("RAY_RUNTIME_ENV_HOOK" in environment["env_vars"]) is driver_too
    assert ("worker_process_setup_hook" in environment) is not driver_too
    recorded = job.all_metadata()[DEBUG]
    assert json.loads(recorded) == {"attach_timeout": 60.0, "post_mortem": False, "driver": driver_too}


def test_the_limits_that_are_raised_are_a_day_and_named(code: Path) -> None:
    debug = Debug()
    assert (RAISED["RAY_CGRAPH_get_timeout"], RAISED["collective_gloo_timeout"]) == ("86400", "86400000")
    runtime_env: dict[str, Any] = {"env_vars": {"collective_gloo_timeout": "7"}}
    assert submission(code, debug=debug).raised_limits == list(RAISED)
    assert submission(code, debug=debug, **runtime_env).raised_limits == [*RAISED][:-1]
    assert replace(submission(code), debug=None).raised_limits == []


def test_nothing_that_the_user_gave_is_lost(code: Path) -> None:
    runtime_env: dict[str, Any] = {
        "env_vars": {"WORD": "x", "PYDEVD_USE_SYS_MONITORING": "1", "collective_gloo_timeout": "7"},
        "pip": ["numpy"],
        "worker_process_setup_hook": "own.hook",
        "excludes": ["data"],
    }
    debug = Debug(attach_timeout=5, post_mortem=True, pip_debugpy=True)
    environment = submission(code, debug=debug, **runtime_env).environment()
    assert environment["worker_process_setup_hook"] == "own.hook"  # the driver's hook chains it
    assert environment["pip"] == ["numpy", *REQUIREMENTS]
    assert environment["excludes"] == ["data"]
    variables = {"WORD": "x", "PYDEVD_USE_SYS_MONITORING": "1", "RAY_DEBUG_POST_MORTEM": "1", **RAISED}
    assert environment["env_vars"].items() >= {**variables, "collective_gloo_timeout": "7"}.items()
    assert json.loads(environment["env_vars"][VARIABLE]) == {
        "attach_timeout": 5,
        "requirements": [*REQUIREMENTS],
        "given": ["excludes", "pip", "worker_process_setup_hook", "working_dir"],
        "given_env_vars": ["PYDEVD_USE_SYS_MONITORING", "WORD", "collective_gloo_timeout"],
    }
    workers_only = submission(code, "bash run.sh", debug=debug, **runtime_env).environment()
    assert workers_only["worker_process_setup_hook"] == "rayside.worker.attach.setup"
    expected = {"attach_timeout": 5, "setup_hook": "own.hook"}
    assert json.loads(workers_only["env_vars"][VARIABLE]) == expected


def test_what_is_masked_in_recorded_failures_is_the_jobs_own(code: Path) -> None:
    debug = Debug(attach_timeout=5, record_failures=True, masked=("*iban*", "[0-9]{9}"))
    config = json.loads(submission(code, "bash run.sh", debug=debug).environment()["env_vars"][VARIABLE])
    masked = {"masked_names": "*iban*", "masked_values": "[0-9]{9}"}
    assert config == {"attach_timeout": 5, "record_failures": True, **masked}


def test_the_hook_is_the_last_of_py_modules_and_is_not_among_the_users(code: Path) -> None:
    (code / "model").mkdir()
    (code / "model" / "__init__.py").write_text("")
    job = jobs.prepare(
        working_dir=str(code), py_modules=[str(code / "model")], entrypoint="python train.py", debug=Debug()
    )
    modules = job.environment()["py_modules"]
    assert modules[0] == str(code / "model")
    assert (Path(modules[1]) / "worker" / "driver.py").is_file()
    assert json.loads(job.all_metadata()[PY_MODULES]) == [str(code / "model")]


def test_without_debug_nothing_is_added(code: Path) -> None:
    job = jobs.prepare(working_dir=str(code), py_modules=[], entrypoint="python train.py")
    assert job.environment() == {}
    assert set(job.all_metadata()) == {WORKING_DIR}


def started(monkeypatch: pytest.MonkeyPatch, job: dict[str, Any], **env: str) -> None:
    """Returns the driver's environment, as Ray's job supervisor makes it."""
    for name in driver.OURS:
        monkeypatch.delenv(name, raising=False)
    for name, value in {**job.get("env_vars", {}), **env}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", json.dumps({"runtime_env": job, "metadata": {}}))


def test_the_drivers_own_fields_replace_what_we_have_set(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = submission(code, env_vars={"WORD": "x"}).environment()
    job = {**sent, "py_modules": ["gcs://_ray_pkg_1.zip"], "working_dir": "gcs://_ray_pkg_2.zip"}
    started(monkeypatch, job)
    hooked: list[dict[str, Any]] = []

    def hook(env: dict[str, Any], config: Config) -> dict[str, Any]:
        hooked.append(env)
        return {"hooked": config.attach_timeout}

    monkeypatch.setattr(driver, "hooked", hook)
    assert driver.on_init({**job, "py_modules": ["/own"]}) == {"hooked": 60.0}
    assert hooked == [
        {
            "working_dir": "gcs://_ray_pkg_2.zip",
            "py_modules": ["/own", "gcs://_ray_pkg_1.zip"],  # the latter has what the relay calls
            "env_vars": {"WORD": "x", **RAISED},
        }
    ]
    # A second ray.init, and programs that this one starts, find the job as it is without a debugger.
    assert not set(driver.OURS) & set(os.environ)
    left = json.loads(os.environ["RAY_JOB_CONFIG_JSON_ENV_VAR"])["runtime_env"]
    assert left == {key: value for key, value in hooked[0].items() if key != "py_modules"}


@pytest.mark.parametrize(
    "drivers", [{"pip": ["torch"]}, {"env_vars": {"WORD": "y"}}, {"working_dir": "gcs://_ray_pkg_9.zip"}]
)
def test_what_the_user_gave_twice_is_refused_as_ray_refuses_it(
    code: Path, monkeypatch: pytest.MonkeyPatch, drivers: dict[str, Any]
) -> None:
    sent = submission(code, pip=["numpy"], env_vars={"WORD": "x"}).environment()
    job = {**sent, "py_modules": ["gcs://_ray_pkg_1.zip"], "working_dir": "gcs://_ray_pkg_2.zip"}
    started(monkeypatch, job)
    merged = {**job, **drivers, "env_vars": {**job["env_vars"], **drivers.get("env_vars", {})}}
    with pytest.raises(ValueError, match="Failed to merge the Job's runtime env"):
        driver.on_init(merged)


def test_a_hook_that_fails_says_so_and_leaves_the_job_alone(
    code: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = {**submission(code).environment(), "py_modules": ["gcs://_ray_pkg_1.zip"], "working_dir": "gcs://x"}
    started(monkeypatch, job)

    def fails(env: dict[str, Any], config: Config) -> dict[str, Any]:
        raise RuntimeError("no such luck")

    monkeypatch.setattr(driver, "hooked", fails)
    assert driver.on_init(job) == job
    assert capsys.readouterr().err == "rayside: no debugger in this job: RuntimeError: no such luck\n"
