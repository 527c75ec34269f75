"""Tests jobs of the user's own: what reaches them, how their end is reported, and what is refused."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
from pathlib import Path

import pytest

from rayside.dap.client import Client
from tests.integration.conftest import Rayside
from tests.integration.relay_debuggees import Session
from tests.patience import PATIENCE

pytestmark = pytest.mark.gate


@pytest.fixture(scope="module")
def up(rayside: Rayside) -> Rayside:
    done = rayside.run("up", "--no-example")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Next: ./invokew submit --help" in done.stdout
    return rayside


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """Provides a user's folder with a space in its path: programs, and two packages beside them."""
    folder = tmp_path / "my code"
    folder.mkdir()
    for name, value in (("one", 1), ("two", 2)):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(f"VALUE = {value}\n")
    (folder / "program").mkdir()
    (folder / "program" / "good.py").write_text(
        "import os, sys, ray, one, two\n"
        "@ray.remote\n"
        "def add(*values):\n"
        "    return sum(values) + one.VALUE + two.VALUE\n"
        "print(f\"sum {ray.get(add.remote(*map(int, sys.argv[1:])))} {os.environ.get('WORD')}\")\n"
    )
    (folder / "program" / "bad.py").write_text("raise ValueError('no such luck')\n")
    (folder / "program" / "slow.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(600)\n")
    return folder


def test_working_dir_py_modules_and_runtime_env_reach_the_job(up: Rayside, code: Path) -> None:
    (code / "env.yaml").write_text("env_vars: {WORD: hello there}\n")
    modules = ["--py-modules", "one", "--py-modules", str(code / "two")]
    more = ["--entrypoint", "python good.py 10 20", "--runtime-env", "env.yaml", "--wait"]
    done = up.run("submit", "--working-dir", "program", *modules, *more, cwd=code)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "sum 33 hello there" in done.stdout
    assert done.stdout.rstrip().splitlines()[-1].endswith("has ended: SUCCEEDED")


def test_a_job_with_a_debugger_and_nobody_there_runs_to_its_end(up: Rayside, code: Path) -> None:
    (code / "env.yaml").write_text("env_vars: {WORD: hello there}\n")
    modules = ["--py-modules", "one", "--py-modules", str(code / "two")]
    more = ["--entrypoint", "python good.py 10 20", "--runtime-env", "env.yaml", "--wait"]
    debug = ["--debug", "--attach-timeout", "0"]
    done = up.run("submit", "--working-dir", "program", *modules, *more, *debug, cwd=code)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "sum 33 hello there" in done.stdout
    assert "rayside:" not in done.stdout
    job = up.target.access.require().jobs()[-1]
    assert json.loads(job.metadata["rayside.debug"])["driver"] is True
    assert json.loads(job.metadata["rayside.py_modules"]) == [str(code / "one"), str(code / "two")]


def test_a_line_that_is_too_long_for_rays_stream_ends_no_job_before_its_time(up: Rayside, code: Path) -> None:
    program = "import time\nprint('x' * 10_000_000, flush=True)\ntime.sleep(4)\nprint('the last line')\n"
    (code / "program" / "long_line.py").write_text(program)
    done = up.run("submit", "--entrypoint", "python long_line.py", "--wait", cwd=code / "program")
    assert done.returncode == 0, done.stderr
    assert "\nthe last line\n" in done.stdout
    assert done.stdout.count("x" * 10_000_000) == 1


def test_the_document_of_a_submission(up: Rayside, code: Path) -> None:
    document = up.json("submit", "--entrypoint", "python slow.py", cwd=code / "program")
    assert set(document) == {"submission_id", "job", "status", "cluster"}
    assert document["submission_id"].startswith("slow-")
    assert document["status"] in ("PENDING", "RUNNING")
    assert document["cluster"] == "local"


def test_a_failed_job_is_explained(up: Rayside, code: Path) -> None:
    done = up.run("submit", "--entrypoint", "python bad.py", "--wait", cwd=code / "program")
    assert done.returncode == 5
    assert "error[job-failed]" in done.stderr
    assert "exit code 1 (the program raised an exception" in done.stderr
    # The job has said it, which is shown as it came.
    assert "ValueError: no such luck" in done.stdout
    assert "no such luck" not in done.stderr
    document = up.json("submit", "--entrypoint", "python bad.py", "--wait", cwd=code / "program", code=5)
    assert document["error"]["id"] == "job-failed"


def test_ctrl_c_leaves_the_job_running(up: Rayside, code: Path) -> None:
    arguments = ["--working-dir", str(code / "program"), "--entrypoint", "python slow.py", "--wait"]
    with up.start("submit", *arguments) as running:
        assert running.stdout
        for line in running.stdout:
            if line == "up\n":
                break
        running.send_signal(signal.SIGINT)
        rest = running.stdout.read()
        assert running.wait(10) == 130
    job = up.target.access.require().jobs()[-1]
    assert job.status == "RUNNING"
    assert f"error[interrupted]: interrupted; the job {job.submission_id} goes on" in rest
    assert f" hint: ./invokew logs --follow --job {job.submission_id}\n" in rest
    with up.start("logs", "--follow", "--job", job.submission_id) as following:
        assert following.stdout
        for line in following.stdout:
            if line == "up\n":
                break
        following.send_signal(signal.SIGINT)
        assert "error" not in following.stdout.read()
        assert following.wait(10) == 130


SHELL = """
import ray, sys

@ray.remote
def double(n):
    result = n * 2
    return result

ray.init()
print(sys.argv[1:], "is", ray.get(double.remote(21)))
"""


@pytest.mark.parametrize(
    ("folder", "entrypoint"),
    [
        ("sub", "cd sub && python main.py 'a  b' c"),
        (".", "cd sub\nsh -c 'python ../main.py \"a  b\" c' | cat"),
    ],
)
def test_a_shell_command_is_run_unchanged_and_its_python_stops(
    up: Rayside, tmp_path: Path, folder: str, entrypoint: str
) -> None:
    (tmp_path / "sub").mkdir()
    file = tmp_path / folder / "main.py"
    file.write_text(SHELL)
    job = up.json("submit", "--debug", "--entrypoint", entrypoint, cwd=tmp_path)["submission_id"]
    breaks = [f"--break={file}:{number}" for number in (7, 10)]
    stops = up.json("debug", "--job", job, *breaks, "--evaluate", "globals().get('n', 0)")["stopped"]
    seen = [(stop["task"], stop["file"], stop["line"]) for stop in stops]
    assert sorted(seen) == [("double", str(file), 7), ("driver", str(file), 10)]
    assert "['a  b', 'c'] is 42" in up.run("logs", "--job", job).stdout


def test_a_program_outside_of_the_folder_is_run(up: Rayside, tmp_path: Path) -> None:
    (tmp_path / "image").mkdir()
    (tmp_path / "image" / "main.py").write_text(SHELL)
    (tmp_path / "code").mkdir()
    entrypoint = f'WORD="it\'s" python {tmp_path}/image/main.py $WORD'
    arguments = ["--working-dir", "code", "--entrypoint", entrypoint, "--wait"]
    done = up.run("submit", *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "is 42" in done.stdout


def test_archives_and_a_package_without_init_are_sent_as_ray_takes_them(up: Rayside, tmp_path: Path) -> None:
    (tmp_path / "helpers").mkdir()
    (tmp_path / "helpers" / "calc.py").write_text("def add(a, b):\n    total = a + b\n    return total\n")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(
        "import ray, helpers.calc\nray.init()\n"
        "print('is', ray.get(ray.remote(helpers.calc.add).remote(2, 3)))\n"
    )
    for kind in ("zip", "gztar"):
        shutil.make_archive(str(tmp_path / "code"), kind, tmp_path / "src")
    (tmp_path / "env.yaml").write_text(f"working_dir: {tmp_path}/code.tar.gz\npy_modules: [helpers]\n")
    program = ["--entrypoint", "python train.py"]
    done = up.run("submit", "--runtime-env", "env.yaml", *program, "--wait", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "is 5\n" in done.stdout
    done = up.run(
        "submit", "--working-dir", "code.zip", "--py-modules", "helpers", *program, "--debug", cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Breakpoints in code.zip need an editor's pathMappings" in done.stdout
    job = up.target.access.require().jobs()[-1].submission_id
    token, port = up.target.instance.token_file.read_text(), up.settings.relay_port

    async def stops() -> list[tuple[str, int]]:
        client = await Client.connect("127.0.0.1", port)
        source, module = tmp_path / "src", tmp_path / "helpers" / "calc.py"
        await client.attach(
            breakpoints={str(source / "train.py"): [{"line": 3}], str(module): [{"line": 3}]},
            options={
                "token": token,
                "job": job,
                "pathMappings": [{"localRoot": str(source), "remoteRoot": "."}],
            },
            no_delay=False,
        )
        editor, seen = Session(client, patience=PATIENCE), []
        for _ in range(2):
            stop = await editor.event("stopped")
            frame = (await editor.frames(stop))[0]
            seen.append((frame["source"]["path"], frame["line"]))
            await editor.request("continue", threadId=stop["threadId"])
        await client.disconnect()
        return seen

    assert asyncio.run(asyncio.wait_for(stops(), 2 * PATIENCE)) == [
        (f"{tmp_path}/src/train.py", 3),
        (f"{tmp_path}/helpers/calc.py", 3),
    ]
    error = up.json("submit", "--working-dir", "env.yaml", *program, cwd=tmp_path, code=5)["error"]
    assert "env.yaml is neither a folder nor an archive" in error["message"]


@pytest.mark.parametrize(
    ("arguments", "identity"),
    [
        (["--working-dir", "nowhere", "--entrypoint", "python good.py"], "missing-working-dir"),
        (["--working-dir", "program"], "missing-entrypoint"),
        (
            ["--working-dir", "program", "--py-modules", "three", "--entrypoint", "python good.py"],
            "not-a-package",
        ),
        (
            ["--working-dir", "program", "--runtime-env", "x.yaml", "--entrypoint", "python good.py"],
            "invalid-yaml",
        ),
        (
            ["--working-dir", "program", "--runtime-env", "env.yaml", "--entrypoint", "python good.py"],
            "invalid-yaml",
        ),
    ],
)
def test_what_can_not_work_is_refused_before_anything_is_sent(
    up: Rayside, code: Path, arguments: list[str], identity: str
) -> None:
    before = len(up.target.access.require().jobs())
    (code / "env.yaml").write_text("conda: 7\n")
    error = up.json("submit", *arguments, cwd=code, code=2)["error"]
    assert error["id"] == identity
    assert error["message"]
    assert error["hint"]
    assert len(up.target.access.require().jobs()) == before


def test_a_runtime_env_that_ray_refuses_is_told_in_its_words(up: Rayside, code: Path) -> None:
    (code / "env.yaml").write_text("working_dir: https://example.test/a.txt\n")
    arguments = ["--entrypoint", "python good.py", "--runtime-env", "env.yaml"]
    error = up.json("submit", *arguments, cwd=code, code=5)["error"]
    assert error["id"] == "submission-failed"
    assert "a.txt" in error["message"]


@pytest.mark.parametrize(
    ("arguments", "code", "identity"),
    [
        (["logs", "--job", "nope"], 5, "job-not-found"),
        (["debug", "--job", "nope"], 5, "job-not-found"),
        (["debug", "--timeout", "0"], 2, "invalid-argument"),
        (["debug", "--timeout", "abc"], 2, "invalid-argument"),
        (["up", "--wait-for-engine", "abc"], 2, "invalid-argument"),
        (["up", "--target", "moon"], 2, "unknown-target"),
        (["up", "--source", "tape"], 2, "unknown-source"),
        (["test", "--suite", "none"], 2, "invalid-argument"),
        (["submit", "--post-mortem"], 2, "invalid-argument"),
        (["submit", "--attach-timeout", "5"], 2, "invalid-argument"),
        (["submit", "--debug", "--attach-timeout", "-1"], 2, "invalid-argument"),
    ],
)
def test_other_wrong_words(up: Rayside, arguments: list[str], code: int, identity: str) -> None:
    done = up.run(*arguments)
    assert done.returncode == code
    assert f"error[{identity}]" in done.stderr
    assert "\n hint: " in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_setting_is_an_error_of_every_verb(up: Rayside) -> None:
    done = up.run("status", "--json", env={"INVOKE_RAYSIDE_DASHBORD_PORT": "1"})
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["id"] == "unknown-setting"


def test_an_invoke_yaml_is_read_and_its_unknown_keys_are_refused(up: Rayside, tmp_path: Path) -> None:
    file = tmp_path / "rayside.yaml"
    file.write_text("rayside: {ray_cpus: 3}\n")
    assert "ray_cpus is 2, the settings say 3" in up.run("--config", str(file), "up").stderr
    file.write_text("rayside: {cpus: 3}\n")
    assert "unknown setting 'cpus'" in up.run("--config", str(file), "up").stderr
