"""Tests jobs: what is refused before anything is sent, the command that sends it, and explained ends."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bootstrap.errors import InvalidYaml, MissingEntrypoint, MissingWorkingDir, NotAPackage
from bootstrap.ray import jobs, outcome
from bootstrap.ray.metadata import LOCAL_ROOTS, PY_MODULES, WORKING_DIR
from bootstrap.ray.records import Job


def prepare(folder: Path, **changed: object) -> jobs.Submission:
    arguments: dict[str, object] = {
        "working_dir": str(folder),
        "py_modules": [],
        "entrypoint": "python train.py",
        **changed,
    }
    return jobs.prepare(**arguments)  # type: ignore[arg-type]


def test_a_complete_job_is_made_absolute(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(program)
    job = jobs.prepare(working_dir=None, py_modules=["model"], entrypoint="python train.py")
    assert job.working_dir == str(program)
    assert job.py_modules == (str(program / "model"),)


def test_a_missing_working_dir_is_refused(program: Path) -> None:
    with pytest.raises(MissingWorkingDir, match="nowhere"):
        prepare(program, working_dir=str(program / "nowhere"))


def test_a_missing_program_is_refused_with_those_that_are_there(program: Path) -> None:
    with pytest.raises(MissingEntrypoint, match=r"no tarin\.py in") as caught:
        prepare(program, entrypoint="python tarin.py --epochs 3")
    assert caught.value.hint == "it has train.py"


@pytest.mark.parametrize("entrypoint", [None, "", "  ", "python 'train.py"])
def test_an_entrypoint_that_says_nothing_is_refused(program: Path, entrypoint: str | None) -> None:
    with pytest.raises(MissingEntrypoint):
        prepare(program, entrypoint=entrypoint)


def test_a_module_that_is_no_package_is_refused_with_a_guess(program: Path) -> None:
    with pytest.raises(NotAPackage, match="has no __init__") as caught:
        prepare(program, py_modules=[str(program)])
    assert caught.value.hint == f"did you mean {program / 'model'}?"
    with pytest.raises(NotAPackage, match="there is no package"):
        prepare(program, py_modules=[str(program / "nothing")])


def test_remote_packages_are_passed_on(program: Path) -> None:
    job = prepare(program, working_dir="s3://bucket/code.zip", py_modules=["gcs://_ray_pkg_1.zip"])
    assert job.working_dir == "s3://bucket/code.zip"
    assert job.py_modules == ("gcs://_ray_pkg_1.zip",)


def test_a_runtime_env_file_adds_what_the_options_do_not_say(program: Path) -> None:
    file = program / "env.yaml"
    file.write_text(
        f"env_vars: {{A: b}}\npy_modules: [{json.dumps(str(program / 'model'))}]\nworking_dir: /x"
    )
    job = prepare(program, runtime_env=file)
    assert job.runtime_env == {"env_vars": {"A": "b"}}
    assert job.py_modules == (str(program / "model"),)
    assert job.working_dir == str(program)


@pytest.mark.parametrize(
    ("text", "message_part"),
    [("pip: [a\nenv: b\n", "line 2"), ("- a\n", "not a mapping"), ("\x00", "special characters")],
)
def test_a_broken_runtime_env_file_is_refused_with_its_place(
    program: Path, text: str, message_part: str
) -> None:
    file = program / "env.yaml"
    file.write_text(text)
    with pytest.raises(InvalidYaml, match=message_part):
        prepare(program, runtime_env=file)
    with pytest.raises(InvalidYaml, match="can't be read"):
        prepare(program, runtime_env=program / "absent.yaml")


def test_the_command_keeps_quoted_words_and_local_roots(program: Path) -> None:
    job = prepare(program, entrypoint="python train.py --name 'a b'", py_modules=[str(program / "model")])
    command = job.command(Path("ray"), "http://127.0.0.1:8265", "train-1", None)
    assert command[command.index("--") + 1 :] == ["python", "train.py", "--name", "a b"]
    assert command[command.index("--working-dir") + 1] == str(program)
    metadata = json.loads(command[command.index("--metadata-json") + 1])
    assert metadata[WORKING_DIR] == str(program)
    assert json.loads(metadata[PY_MODULES]) == [str(program / "model")]


def test_shell_syntax_goes_through_a_shell(program: Path) -> None:
    job = prepare(program, entrypoint="python train.py > out.txt && echo done")
    command = job.command(Path("ray"), "url", "train-1", None)
    assert command[command.index("--") + 1 :] == ["sh", "-c", "python train.py > out.txt && echo done"]


def test_a_runtime_env_file_keeps_secrets_out_of_the_command(program: Path) -> None:
    file = program / "env.yaml"
    file.write_text("env_vars: {KEY: hunter2}")
    job = prepare(program, runtime_env=file)
    command = job.command(Path("ray"), "url", "train-1", Path("/private/runtime_env.yaml"))
    assert "hunter2" not in " ".join(command)
    assert command[command.index("--runtime-env") + 1] == "/private/runtime_env.yaml"


@pytest.mark.parametrize(
    ("code", "explanation"),
    [
        (1, "raised an exception"),
        (127, "was not found"),
        (-9, "SIGKILL: killed, most often because memory ran out"),
        (137, "SIGKILL"),
        (139, "SIGSEGV"),
        (42, "as the program chose"),
        (255, "exit code 255"),
    ],
)
def test_exit_codes_are_explained(code: int, explanation: str) -> None:
    assert explanation in outcome.explain_exit(code)


def test_a_failed_job_shows_its_last_words() -> None:
    job = Job("t-1", "01000000", "FAILED", "python t.py", "Traceback\nValueError: no", 1, 0.0, 7, {}, {})
    error = outcome.failure(job)
    assert "raised an exception" in error.message
    assert error.message.endswith("ValueError: no")
    assert "--job t-1" in error.hint
    # What was shown just before is not said again; what Ray itself says of a failure is shown nowhere else.
    assert "no" not in outcome.failure(job, output_shown=True).message.split()
    assert outcome.failure(replace(job, exit_code=None), output_shown=True).message.endswith("ValueError: no")


def test_the_last_words_of_a_failed_job_have_no_colours() -> None:
    message = "Traceback\n\x1b[36mray::bad()\x1b[39m (pid=7)\nValueError: no"
    job = Job("t-1", "01000000", "FAILED", "python t.py", message, 1, 0.0, 7, {}, {})
    assert outcome.failure(job).message.splitlines()[-2:] == ["ray::bad() (pid=7)", "ValueError: no"]


def test_submission_ids_say_what_runs_and_differ() -> None:
    first, second = (jobs.new_submission_id("python src/My_Train.py --x") for _ in range(2))
    assert first.startswith("my-train-")
    assert first != second
    assert jobs.new_submission_id("python -m model").startswith("job-")


def test_a_folder_written_through_a_symlink_is_kept_as_it_was_written(program: Path) -> None:
    link = program.parent / "link"
    link.symlink_to(program)
    job = prepare(link, py_modules=[str(link / "model"), str(program / "model")])
    assert job.working_dir == str(program)
    metadata = json.loads(job.options("train-1", None)[-1])
    assert json.loads(metadata[LOCAL_ROOTS]) == {
        str(program): str(link),
        str(program / "model"): str(link / "model"),
    }
    assert LOCAL_ROOTS not in json.loads(prepare(program).options("train-1", None)[-1])
