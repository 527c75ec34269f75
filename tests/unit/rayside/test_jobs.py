"""Tests jobs: what is refused before anything is sent, what is sent, and explained ends."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from rayside.errors import (
    InvalidYaml,
    MissingEntrypoint,
    MissingWorkingDir,
    NotAPackage,
    NotRunning,
    SubmissionFailed,
)
from rayside.ray import jobs, outcome
from rayside.ray.debug import Debug
from rayside.ray.metadata import LOCAL_ROOTS, WORKING_DIR
from rayside.ray.records import Job
from tests.unit.scripted_jobs_api import jobs_api


def prepare(folder: Path | None, **changed: object) -> jobs.Submission:
    working_dir = str(folder) if folder else None
    given = {"working_dir": working_dir, "py_modules": [], "entrypoint": "python train.py", **changed}
    return jobs.prepare(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changed", "error", "message_part"),
    [
        ({"working_dir": "nowhere"}, MissingWorkingDir, "nowhere"),
        *(
            ({"entrypoint": entrypoint}, MissingEntrypoint, "no program was named")
            for entrypoint in (None, "", "  ")
        ),
        ({"py_modules": ["nothing"]}, NotAPackage, r"there is no file or folder .*nothing"),
    ],
)
def test_what_a_job_lacks_is_refused(
    program: Path, changed: dict[str, object], error: type[Exception], message_part: str
) -> None:
    with pytest.raises(error, match=message_part):
        prepare(program, **changed)


@pytest.mark.parametrize("entrypoint", ["python missing.py", " python3.11 sub/missing.py --rate=3 'a b'"])
def test_a_program_that_the_folder_lacks_is_refused(program: Path, entrypoint: str) -> None:
    with pytest.raises(MissingEntrypoint, match=r"there is no file \S*missing.py in .*/my code"):
        prepare(program, entrypoint=entrypoint)
    there = re.sub(r"\S*missing", "model/../train", entrypoint)
    assert prepare(program, entrypoint=there).entrypoint == there


@pytest.mark.parametrize(
    "entrypoint",
    [
        *("python /opt/missing.py", "python -m missing", "python -u missing.py", "python ~/missing.py"),
        *(
            "cd sub && python missing.py",
            "python missing.py || true",
            "python missing.py; x",
            "cat missing.py",
        ),
        *("python $PROGRAM.py", "python 'missing.py'", "A=1 python missing.py", "python missing"),
        "python missing.py\ncd x",
    ],
)
def test_a_line_that_may_find_its_program_elsewhere_is_taken(program: Path, entrypoint: str) -> None:
    assert prepare(program, entrypoint=entrypoint).entrypoint == entrypoint


def test_all_that_ray_takes_is_passed_on_and_what_has_unknown_files_is_named(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(program)
    (program / "model" / "__init__.py").unlink()  # a namespace package
    for name in ("code.zip", "code.tar.gz", "one-1.0-py3-none-any.whl", "one.py"):
        (program / name).touch()
    modules = ["model", "one-1.0-py3-none-any.whl", "one.py"]
    addresses = ["gcs://_ray_pkg_1.zip", "local:///opt/two", "https://u:p@host/three.zip?key=k"]
    for folder, metadata in (
        ("code.zip", None),
        ("code.tar.gz", None),
        ("s3://b/code.zip", None),
        (".", "."),
    ):
        job = prepare(program, working_dir=folder, py_modules=[*modules, *addresses], debug=Debug())
        local = "://" not in folder
        assert job.working_dir == (str((program / folder).resolve()) if local else folder)
        assert job.py_modules == (*(str(program / module) for module in modules), *addresses)
        assert job.all_metadata().get(WORKING_DIR) == (metadata and str(program))
        [note] = job.notes()
        unknown = [] if metadata else [folder.rpartition("/")[2]]
        unknown += [*modules[1:], "_ray_pkg_1.zip", "two", "three.zip"]
        assert note == f"Breakpoints in {', '.join(unknown)} need an editor's pathMappings: " + (
            "docs/editors.md#archives"
        )
    assert prepare(program, py_modules=["model"], debug=Debug()).notes() == []
    assert prepare(program, working_dir="code.zip").notes() == []
    for address in ("https://me:secret@host?x.zip", "https://host/x.zip#tok=se/cret", "https://me:secret@"):
        (note,) = prepare(program, working_dir=address, debug=Debug()).notes()
        assert "cret" not in note


def test_an_image_of_the_job_or_of_its_rayjob_stands_alone(program: Path) -> None:
    own = {"image_uri": "image", "env_vars": {"A": "b"}}
    assert prepare(None, of_rayjob=own).working_dir is None
    for more in ({"debug": Debug()}, {"working_dir": str(program)}):
        with pytest.raises(InvalidYaml, match="image_uri goes with"):
            prepare(None, of_rayjob=own, **more)
    file = program / "env.yaml"
    file.write_text("image_uri: image\n")
    with pytest.raises(InvalidYaml, match="working_dir"):
        prepare(None, runtime_env=file, of_rayjob={"working_dir": "https://host/code.zip"})


def test_a_rayjobs_own_addresses_count_where_nothing_else_is_named(program: Path) -> None:
    own = {"working_dir": "https://host/code.zip", "py_modules": ["s3://b/one.zip", "/opt/two"], "pip": ["a"]}
    job = prepare(None, of_rayjob=own)
    assert (job.working_dir, job.py_modules) == ("https://host/code.zip", ("s3://b/one.zip",))
    assert prepare(program, of_rayjob=own).working_dir == str(program)


def test_a_runtime_env_file_adds_what_the_options_do_not_say(program: Path) -> None:
    file = program / "env.yaml"
    modules = json.dumps([str(program / "model")])
    file.write_text(f"env_vars: {{A: b}}\npy_modules: {modules}\nworking_dir: /x")
    job = prepare(program, runtime_env=file)
    assert job.runtime_env == {"env_vars": {"A": "b"}}
    assert job.py_modules == (str(program / "model"),)
    assert job.working_dir == str(program)


@pytest.mark.parametrize(
    ("text", "message_part"),
    [
        ("pip: [a\nenv: b\n", "line 2"),
        ("- a\n", "not a mapping"),
        ("\x00", "special characters"),
        ("py_modules: model", "py_modules in .* is a text, and Ray takes a list of texts"),
    ],
)
def test_a_broken_runtime_env_is_refused_by_place(program: Path, text: str, message_part: str) -> None:
    file = program / "env.yaml"
    file.write_text(text)
    with pytest.raises(InvalidYaml, match=message_part):
        prepare(program, runtime_env=file)
    with pytest.raises(InvalidYaml, match="can't be read"):
        prepare(program, runtime_env=program / "absent.yaml")


@pytest.mark.parametrize(
    ("entrypoint", "printed"),
    [
        ("echo a  'b  c'", "a b  c"),
        ("echo a > out.txt && cat out.txt", "a"),
        ("cd sub && pwd -P | sed 's|.*/||'", "sub"),
        ("echo one\necho two", "one\ntwo"),
        ("sh -c 'echo \"$0\" end'", "sh end"),
        ('WORD="a b" sh -c \'echo "$WORD"\'', "a b"),
        ("A=1 B=2 printenv A B", "1\n2"),
        ("cat <<END\nit's so\nEND", "it's so"),
        ("echo a # it's a comment", "a"),
        ("echo \\\n  a !", "a !"),
        ("for x in 1 2; do echo $x; done", "1\n2"),
        ("python -m tools.emit --out gen/out.py", ""),
    ],
)
def test_an_entrypoint_means_the_same_to_rays_shell(program: Path, entrypoint: str, printed: str) -> None:
    job = prepare(program, entrypoint=entrypoint)
    with jobs_api() as ray:
        jobs.submit(ray.dashboard(), job, "train-1")
    # The job's supervisor gives the line to sh.
    line = ray.jobs[0]["entrypoint"]
    assert line == shlex.join(job.words())
    if printed:
        (program / "sub").mkdir()
        assert subprocess.check_output(line, shell=True, cwd=program, text=True).strip() == printed
    else:
        assert line == entrypoint


@pytest.mark.parametrize("debug", [None, Debug(attach_timeout=5, post_mortem=True)])
def test_ray_gets_the_whole_job(program: Path, debug: Debug | None) -> None:
    requirements = program / "requirements.txt"
    requirements.write_text("a\n")
    (program / "env.yaml").write_text(f"env_vars: {{A: b}}\nexcludes: [train.py]\npip: {requirements}")
    job = prepare(program, py_modules=[str(program / "model")], runtime_env=program / "env.yaml", debug=debug)
    job = replace(job, reserved={"entrypoint_num_cpus": 0.5, "entrypoint_resources": {"TPU": 4}}, user="anna")
    with jobs_api() as ray:
        jobs.submit(ray.dashboard(), job, "train-1")
    (sent,) = ray.jobs
    runtime_env = sent.pop("runtime_env")
    assert sent == {
        "entrypoint": "python train.py",
        "submission_id": "train-1",
        "metadata": job.all_metadata(),
        "entrypoint_num_cpus": 0.5,
        "entrypoint_resources": {"TPU": 4},
    }
    assert sent["metadata"][WORKING_DIR] == str(program)
    folders = [runtime_env.pop("working_dir"), *runtime_env.pop("py_modules")]
    environment = job.environment()
    assert len(folders) == 1 + len(environment.pop("py_modules"))
    assert runtime_env == {**environment, "pip": ["a"]}
    assert "train.py" not in ray.names(folders[0])
    assert ray.names(folders[1]) == ["model/__init__.py"]
    assert not debug or "rayside/worker/driver.py" in ray.names(folders[2])
    assert ray.tokens == {"Bearer token"}


def test_a_remote_working_dir_is_passed_on_and_none_is_left_out(program: Path) -> None:
    with jobs_api() as ray:
        jobs.submit(ray.dashboard(), prepare(None, working_dir="s3://bucket/code.zip"), "a-1")
        jobs.submit(ray.dashboard(), jobs.Submission("true", None), "a-2")
    assert [job["runtime_env"] for job in ray.jobs] == [{"working_dir": "s3://bucket/code.zip"}, {}]
    assert [job["metadata"] for job in ray.jobs] == [{}, {}]


def test_why_ray_does_not_take_a_job_is_its_last_line_and_a_known_id_is_submitted() -> None:
    job, trace = jobs.Submission("true", None), "Traceback (most recent call last):\n  File\nValueError: "
    with jobs_api() as ray:
        ray.refusals["POST"] = 400, f"{trace}no such field\n"
        with pytest.raises(SubmissionFailed, match=r"^Ray did not take the job: ValueError: no such field$"):
            jobs.submit(ray.dashboard(), job, "a-1")
        ray.refusals["POST"] = 500, f"{trace}Job with submission_id a-1 already exists. Please use another.\n"
        jobs.submit(ray.dashboard(), job, "a-1")
        ray.refusals, ray.failure = {}, f"{trace}Only .zip files are supported\n"
        with pytest.raises(SubmissionFailed, match=r"ValueError: Only .zip files are supported$"):
            jobs.submit(ray.dashboard(), job, "a-2")
        ray.refusals["POST"] = 401, "no"
        with pytest.raises(NotRunning, match="refuses our token"):
            jobs.submit(ray.dashboard(), job, "a-1")
    with pytest.raises(NotRunning, match="no Ray dashboard answers"):
        jobs.submit(ray.dashboard(), job, "a-1")


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
    job = Job("t-1", "01000000", "FAILED", "python t.py", "Traceback\nValueError: no", 1, 0.0, {}, {})
    error = outcome.failure(job)
    assert "raised an exception" in error.message
    assert error.message.endswith("ValueError: no")
    assert "--job t-1" in error.hint
    # What was shown just before is not said again; what Ray itself says of a failure is shown nowhere else.
    assert "no" not in outcome.failure(job, output_shown=True).message.split()
    assert outcome.failure(replace(job, exit_code=None), output_shown=True).message.endswith("ValueError: no")


def test_a_job_that_never_ran_shows_what_failed_and_the_end_of_rays_traceback() -> None:
    message = "runtime_env setup failed\n" + "  File ray.py\n" * 20 + "ERROR: No matching distribution"
    error = outcome.failure(
        Job("t-1", "", "FAILED", "python t.py", message, None, 0.0, {}, {}), output_shown=True
    )
    shown = error.message.splitlines()
    assert shown[1:3] == ["runtime_env setup failed", "..."] and len(shown) == 7
    assert shown[-1] == "ERROR: No matching distribution"
    # It has printed nothing that `logs` could show.
    assert error.hint.startswith("./invokew diagnose --job t-1")


def test_the_last_words_of_a_failed_job_have_no_colours() -> None:
    message = "Traceback\n\x1b[36mray::bad()\x1b[39m (pid=7)\nValueError: no"
    job = Job("t-1", "01000000", "FAILED", "python t.py", message, 1, 0.0, {}, {})
    assert outcome.failure(job).message.splitlines()[-2:] == ["ray::bad() (pid=7)", "ValueError: no"]


def test_submission_ids_say_what_runs_and_differ() -> None:
    first, second = (jobs.new_submission_id("python src/My_Train.py --x") for _ in range(2))
    assert first.startswith("my-train-")
    assert first != second
    assert jobs.new_submission_id("python -m model").startswith("job-")
    assert jobs.new_submission_id("cd sub && sh -c 'python ../main.py'").startswith("main-")


def test_a_folder_written_through_a_symlink_is_kept_as_it_was_written(program: Path) -> None:
    link = program.parent / "link"
    link.symlink_to(program)
    job = prepare(link, py_modules=[str(link / "model"), str(program / "model")])
    assert job.working_dir == str(program)
    assert json.loads(job.all_metadata()[LOCAL_ROOTS]) == {
        str(program): str(link),
        str(program / "model"): str(link / "model"),
    }
    assert LOCAL_ROOTS not in prepare(program).all_metadata()
