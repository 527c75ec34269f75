"""Tests the submission of a RayJob: the command that sends it, and what happens when it fails."""

from __future__ import annotations

import copy
import json
import shlex
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from bootstrap.errors import ClusterUnreachable, CommandFailed, NamespaceTerminating, SubmissionFailed
from bootstrap.kube.api import Kube
from bootstrap.kube.rayjob import watcher
from bootstrap.kube.rayjob.document import own_head_selector
from bootstrap.kube.rayjob.submission import KubectlRay
from bootstrap.ray import jobs
from bootstrap.ray.metadata import PY_MODULES, WORKING_DIR
from bootstrap.shell import Outcome, Shell
from tests.unit.scripted_rayjob import ACTIVE, JOB, NAMESPACE, Scripted, existing_rayjob, rayjob, scripted


class Recording(Shell):
    """Runs nothing: it keeps the commands and their files, and ends as it was told to end."""

    def __init__(self, fails: BaseException | None = None) -> None:
        super().__init__()
        self.fails = fails
        self.args: list[str] = []
        self.env: Mapping[str, str] = {}
        self.files: dict[str, str] = {}

    def run(self, args: Sequence[str | Path], *, env: Mapping[str, str] | None = None, **_: Any) -> Outcome:
        assert not self.args, "run twice"
        self.args, self.env = [str(arg) for arg in args], env or {}
        for option in ("--filename", "--runtime-env"):
            if option in self.args:
                file = Path(self.after(option))
                assert file.parent.stat().st_mode & 0o077 == 0
                self.files[option] = file.read_text()
        if self.fails:
            raise self.fails
        return Outcome(0, "", "")

    def after(self, option: str) -> str:
        return self.args[self.args.index(option) + 1]


@pytest.fixture(autouse=True)
def _looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "_PAUSE", 0.005)


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "my code"
    (folder / "model").mkdir(parents=True)
    (folder / "model" / "__init__.py").write_text("")
    (folder / "train.py").write_text("")
    return folder


def submission(code: Path, entrypoint: str = "python train.py") -> jobs.Submission:
    return jobs.prepare(working_dir=str(code), py_modules=[str(code / "model")], entrypoint=entrypoint)


def submit(
    shell: Recording,
    kube: Kube,
    job: jobs.Submission,
    manifest: dict[str, Any] | None = None,
) -> None:
    kubectl = KubectlRay(shell, kube, Path("/bin/kubectl-ray"), Path("/ray/bin"))
    url, token = "http://127.0.0.1:8265", Path("/s/token")
    kubectl.submit(manifest or rayjob(), job, "m-1", url=url, token_file=token)


def test_the_command_says_all_that_rays_own_says(code: Path) -> None:
    shell = Recording()
    submit(shell, scripted({JOB: None}), submission(code, "python train.py --name 'a b'"))
    assert shell.args[:4] == ["/bin/kubectl-ray", "job", "submit", "--filename"]
    assert json.loads(shell.files["--filename"]) == rayjob()
    expected = {
        "--kubeconfig": "/k/config",
        "--context": "kind-rayside",
        "--namespace": "default",
        "--address": "http://127.0.0.1:8265",
        "--submission-id": "m-1",
        "--working-dir": str(code),
    }
    assert {option: shell.after(option) for option in expected} == expected
    assert "--no-wait" in shell.args
    metadata = json.loads(shell.after("--metadata-json"))
    assert metadata[WORKING_DIR] == str(code)
    assert json.loads(metadata[PY_MODULES]) == [str(code / "model")]
    assert json.loads(shell.after("--runtime-env-json")) == {"py_modules": [str(code / "model")]}


@pytest.mark.parametrize(
    "entrypoint", ["python train.py --name 'a b' \"it's #1\"", "python train.py > out.txt"]
)
def test_the_entrypoint_survives_being_split_twice(code: Path, entrypoint: str) -> None:
    shell, job = Recording(), submission(code, entrypoint)
    submit(shell, scripted({JOB: None}), job)
    after = shell.args[shell.args.index("--") + 1 :]
    assert len(after) == 1
    assert shlex.split(after[0]) == job.words()


def test_the_runtime_env_of_the_file_is_kept_under_that_of_the_command_line(code: Path) -> None:
    shell = Recording()
    inside = "env_vars: {KEY: hunter2}\npip: [a]\nworking_dir: /elsewhere\npy_modules: [/other]\n"
    (code / "env.yaml").write_text("pip: [b]")
    job = jobs.prepare(
        working_dir=str(code), py_modules=[], entrypoint="python train.py", runtime_env=code / "env.yaml"
    )
    submit(shell, scripted({JOB: None}), job, rayjob(runtimeEnvYAML=inside))
    assert json.loads(shell.files["--runtime-env"]) == {"env_vars": {"KEY": "hunter2"}, "pip": ["b"]}
    assert "hunter2" not in " ".join(shell.args)
    assert "--runtime-env-json" not in shell.args


def test_the_environment_has_the_token_as_a_file_and_rays_programs_first(
    code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "http://elsewhere")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "another")
    monkeypatch.setenv("NO_PROXY", "example.org")
    shell = Recording()
    submit(shell, scripted({JOB: None}), submission(code))
    assert shell.env["PATH"].startswith("/ray/bin:")
    assert shell.env["RAY_AUTH_MODE"] == "token"
    assert shell.env["RAY_AUTH_TOKEN_PATH"] == "/s/token"
    assert shell.env["NO_PROXY"] == "example.org,127.0.0.1,localhost"
    assert not {"RAY_ADDRESS", "RAY_AUTH_TOKEN"} & set(shell.env)


def test_a_cluster_without_authentication_is_not_sent_a_token(code: Path) -> None:
    shell = Recording()
    job = rayjob(clusterSelector=None, rayClusterSpec={"headGroupSpec": {}})
    submit(shell, scripted({JOB: None}), submission(code), job)
    assert shell.env["RAY_AUTH_MODE"] == "disabled"
    assert "RAY_AUTH_TOKEN_PATH" not in shell.env


def test_the_head_of_the_jobs_own_cluster_is_found_by_a_label(code: Path) -> None:
    shell = Recording()
    job = rayjob(clusterSelector=None, rayClusterSpec={"headGroupSpec": {"template": {"spec": {}}}})
    before = copy.deepcopy(job)
    submit(shell, scripted({JOB: None}), submission(code), job)
    sent = json.loads(shell.files["--filename"])["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]
    labels = {**sent["metadata"]["labels"], "ray.io/node-type": "head"}
    assert ",".join(f"{key}={value}" for key, value in labels.items()) == own_head_selector("mine")
    assert job == before


def test_kubectl_ray_that_was_ended_says_that_all_is_well(code: Path) -> None:
    """kubectl-ray ends with exit code 0 when it is told to end: what the watcher saw counts."""
    kube = appearing()

    class Ended(Recording):
        def run(self, *args: Any, **more: Any) -> Outcome:
            kube.script[JOB] = existing_rayjob(jobDeploymentStatus="ValidationFailed", message="too long")
            assert looked.wait(10)
            return Outcome(0, "", "")

    looked = threading.Event()
    kubectl = KubectlRay(Ended(), kube, Path("/bin/kubectl-ray"), Path("/ray/bin"))
    object.__setattr__(kubectl, "_end", lambda _: looked.set())
    with pytest.raises(SubmissionFailed, match="gave RayJob mine up: too long"):
        kubectl.submit(rayjob(), submission(code), "m-1", url="u", token_file=Path("/s/token"))
    assert kube.deleted == [JOB]


def test_a_rayjob_of_that_name_is_not_touched(code: Path) -> None:
    shell, kube = Recording(), scripted({JOB: existing_rayjob("other-1", jobStatus="RUNNING")})
    with pytest.raises(SubmissionFailed, match="there is a RayJob mine already; it is RUNNING") as caught:
        submit(shell, kube, submission(code))
    assert "delete rayjob mine" in caught.value.hint
    assert (shell.args, kube.deleted) == ([], [])


def test_what_an_interrupted_try_left_is_made_again(code: Path) -> None:
    shell, kube = Recording(), scripted({JOB: existing_rayjob("m-1", jobDeploymentStatus="Running")})
    submit(shell, kube, submission(code))  # no token file, so no Ray job either
    assert kube.deleted == [JOB]
    assert shell.args


def test_nothing_is_made_in_a_namespace_that_goes(code: Path) -> None:
    shell = Recording()
    with pytest.raises(NamespaceTerminating, match="namespace default is being deleted"):
        submit(shell, scripted({NAMESPACE: {"status": {"phase": "Terminating"}}}), submission(code))
    assert shell.args == []


class Appearing(Scripted):
    """Has the RayJob once it was asked for twice: before kubectl-ray ran, and after it failed."""

    def _call(
        self, method: str, path: str, query: Mapping[str, str], body: str | None = None
    ) -> dict[str, Any] | None:
        answer = super()._call(method, path, query)
        if method == "GET" and path == JOB and not self.deleted:
            self.script[JOB] = existing_rayjob()
        return answer


def appearing() -> Appearing:
    return Appearing(Path("/k/config"), "kind-rayside", script={NAMESPACE: ACTIVE, JOB: None})


RAYS_WORDS = """kubectl-ray job submit
ended with exit code 1
Submitted RayJob mine.
Running Ray submit job command...
Traceback (most recent call last):
RuntimeError: Request failed with status code 500: no such package.
Error: Error occurred with Ray job submit: exit status 1"""


def test_what_ray_refuses_is_told_in_its_words_and_leaves_no_rayjob(code: Path) -> None:
    kube = appearing()
    with pytest.raises(SubmissionFailed, match=r"was not submitted: RuntimeError: .*no such package"):
        submit(Recording(CommandFailed(RAYS_WORDS, hint="")), kube, submission(code))
    assert kube.deleted == [JOB]


def test_an_interruption_leaves_no_rayjob(code: Path) -> None:
    kube = appearing()
    with pytest.raises(KeyboardInterrupt):
        submit(Recording(KeyboardInterrupt()), kube, submission(code))
    assert kube.deleted == [JOB]


def test_a_rayjob_that_came_from_elsewhere_meanwhile_is_not_deleted(code: Path) -> None:
    kube = scripted({JOB: None})
    failed = CommandFailed('it\nError: rayjobs.ray.io "mine" already exists', hint="")

    class Raced(Recording):
        def run(self, *args: Any, **more: Any) -> Outcome:
            kube.script[JOB] = existing_rayjob("other-1")
            raise failed

    with pytest.raises(SubmissionFailed, match="already exists"):
        submit(Raced(), kube, submission(code))
    assert kube.deleted == []


def test_an_api_that_went_away_does_not_hide_the_failure(code: Path) -> None:
    kube = scripted({JOB: None})

    class Gone(Recording):
        def run(self, *args: Any, **more: Any) -> Outcome:
            kube.script[JOB] = kube.script[NAMESPACE] = ClusterUnreachable("gone", hint="")
            raise CommandFailed("it\nError: connection refused", hint="")

    with pytest.raises(SubmissionFailed, match="connection refused"):
        submit(Gone(), kube, submission(code))
