"""Tests the submission of a RayJob: the command that sends it, and what happens when it fails."""

from __future__ import annotations

import copy
import json
import shlex
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bootstrap.errors import NamespaceTerminating
from bootstrap.kube.api import Kube
from bootstrap.kube.rayjob import watcher
from bootstrap.kube.rayjob.document import own_head_selector
from bootstrap.kube.rayjob.kubectl_ray import KubectlRay
from rayside.errors import ClusterUnreachable, CommandFailed, SubmissionFailed
from rayside.ray import jobs
from rayside.ray.metadata import PY_MODULES, WORKING_DIR
from rayside.system.shell import Outcome, Shell
from tests.patience import PATIENCE
from tests.unit.scripted_jobs_api import jobs_api
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
def code(program: Path) -> Path:
    return program


@pytest.fixture
def token(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text("secret\n")
    return tmp_path / "token"


def submission(code: Path, entrypoint: str = "python train.py") -> jobs.Submission:
    return jobs.prepare(working_dir=str(code), py_modules=[str(code / "model")], entrypoint=entrypoint)


def submit(
    shell: Recording,
    kube: Kube,
    job: jobs.Submission,
    manifest: dict[str, Any] | None = None,
    *,
    ended: threading.Event | None = None,
    url: str = "http://127.0.0.1:8265",
    token: Path = Path("/s/token"),
    **more: Any,
) -> None:
    """Submits; where kubectl-ray would be told to end, `ended` is set."""
    kubectl = KubectlRay(shell, kube, Path("/bin/kubectl-ray"), Path("/ray/bin"))
    if ended:
        object.__setattr__(kubectl, "_end", lambda _: ended.set())
    kubectl.submit(manifest or rayjob(), job, "m-1", url=url, token_file=token, **more)


def test_the_command_says_all_that_rays_own_says(code: Path) -> None:
    shell = Recording()
    job = replace(submission(code, "python train.py --name 'a b'"), reserved={"entrypoint_num_cpus": 0.5})
    submit(shell, scripted({JOB: None}), job)
    assert shell.args[:4] == ["/bin/kubectl-ray", "job", "submit", "--filename"]
    assert json.loads(shell.files["--filename"]) == rayjob()
    expected = {
        "--kubeconfig": "/k/config",
        "--context": "kind-rayside",
        "--namespace": "default",
        "--address": "http://127.0.0.1:8265",
        "--submission-id": "m-1",
        "--working-dir": str(code),
        "--entrypoint-num-cpus": "0.5",
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
    given: Any = {"working_dir": str(code), "py_modules": [], "runtime_env": code / "env.yaml"}
    job = jobs.prepare(entrypoint="python train.py", **given)
    submit(shell, scripted({JOB: None}), job, rayjob(runtimeEnvYAML=inside))
    assert json.loads(shell.files["--runtime-env"]) == {"env_vars": {"KEY": "hunter2"}, "pip": ["b"]}
    assert "hunter2" not in " ".join(shell.args)
    assert "--runtime-env-json" not in shell.args


def test_its_environment_has_the_tokens_file_and_path(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    # A cluster without authentication is not sent a token.
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
    with pytest.raises(SubmissionFailed, match="gave RayJob mine up: too long"):
        submit(Ended(), kube, submission(code), ended=looked)
    assert kube.deleted == [JOB]


# --- in place of kubectl-ray ----------------------------------------------------------------


class Makes(Scripted):
    """Keeps the RayJob that is applied; KubeRay has its cluster ready, or waits while it is suspended."""

    def _call(
        self, method: str, path: str, query: Mapping[str, str], body: Mapping[str, Any] | None = None
    ) -> dict[str, Any] | None:
        if method == "PATCH":
            if isinstance(self.script["made"], BaseException):
                raise self.script["made"]
            self.script[path] = self.script["made"] = json.loads(json.dumps(body))
            return dict(self.script["made"])
        answer = super()._call(method, path, query)
        if path == JOB and answer and self.script["admitted"]:
            state = {"rayClusterName": "rayside", "jobDeploymentStatus": "Running"}
            answer = {**answer, "status": state, "spec": {**answer["spec"], "suspend": False}}
        return answer


def makes(*, admitted: bool = True, made: Any = None) -> Makes:
    pods = f"{NAMESPACE}/pods?ray.io/cluster=rayside"
    cluster = "/apis/ray.io/v1/namespaces/default/rayclusters/rayside"
    script = {NAMESPACE: ACTIVE, JOB: None, pods: [], cluster: None, "admitted": admitted, "made": made}
    return Makes(Path("/k/config"), "kind-rayside", script=script)


@pytest.mark.parametrize("case", ["suspended", "resources", "no folder"])
def test_what_kubectl_ray_can_not_do_is_done_without_it(code: Path, token: Path, case: str) -> None:
    shell, kube, job = Recording(), makes(), submission(code)
    manifest = rayjob(suspend=True) if case == "suspended" else rayjob()
    if case == "resources":
        job = replace(job, reserved={"entrypoint_num_cpus": 0.5, "entrypoint_resources": {"TPU": 4}})
    if case == "no folder":
        job = replace(job, working_dir=None)
    with jobs_api() as ray:
        submit(shell, kube, job, manifest, url=ray.url, token=token)
    spec = {**manifest["spec"], "jobId": "m-1"}
    assert kube.script["made"] == {
        **manifest,
        "metadata": {**manifest["metadata"], "namespace": "default"},
        "spec": spec,
    }
    assert shell.args == []
    (sent,) = ray.jobs
    assert sent["submission_id"] == "m-1"
    assert ("working_dir" in sent["runtime_env"]) is (case != "no folder")
    assert {name: sent[name] for name in sent if name.startswith("entrypoint_")} == job.reserved
    assert ray.tokens == {"Bearer secret"}
    assert kube.deleted == []


def test_a_cluster_without_authentication_gets_no_token_without_kubectl_ray_either(code: Path) -> None:
    manifest = rayjob(suspend=True, clusterSelector=None, rayClusterSpec={"headGroupSpec": {"template": {}}})
    with jobs_api() as ray:
        submit(Recording(), makes(), submission(code), manifest, url=ray.url)
    assert ray.tokens == {None}


@pytest.mark.parametrize("fails", [False, True])
def test_a_rayjob_that_kueue_suspends_is_waited_for(code: Path, token: Path, fails: bool) -> None:
    """kubectl-ray is ended, unless it has ended by itself: for a moment KubeRay names a cluster."""
    kube = makes()

    class Once(Recording):
        """Runs kubectl-ray, which makes the RayJob."""

        def run(self, args: Any, **more: Any) -> Outcome:
            super().run(args, **more)
            kube.script["admitted"] = False
            made = existing_rayjob(rayClusterName="mine-x")
            kube.script[JOB] = {**made, "spec": {**made["spec"], "suspend": True}}
            if fails:
                raise CommandFailed('it\nrayclusters.ray.io "mine-x" not found', hint="")
            assert ended.wait(PATIENCE)
            return Outcome(0, "", "")

    def report(text: str) -> None:
        assert "is suspended" in text
        kube.script["admitted"] = True

    ended, shell = threading.Event(), Once()
    with jobs_api() as ray:
        submit(shell, kube, submission(code), ended=ended, url=ray.url, token=token, report=report)
    assert shell.args[0] == "/bin/kubectl-ray"
    assert [job["submission_id"] for job in ray.jobs] == ["m-1"]
    assert kube.deleted == []


def test_ctrl_c_removes_what_waits_in_a_queue(code: Path) -> None:
    shell, kube = Recording(), makes(admitted=False)

    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        submit(shell, kube, submission(code), rayjob(suspend=True), report=interrupt)
    assert kube.deleted == [JOB]
    assert shell.args == []


def test_a_rayjob_that_kubernetes_refuses_is_told_in_its_words(code: Path) -> None:
    refusal = ClusterUnreachable("refused PATCH: 422 spec.ttl: must be integer", hint="")
    with pytest.raises(SubmissionFailed, match=r"RayJob mine was not made: .* must be integer"):
        submit(Recording(), makes(made=refusal), submission(code), rayjob(suspend=True))


def test_a_rayjob_of_that_name_is_not_touched_and_what_another_needs_is_made_before_it(code: Path) -> None:
    made: list[str] = []

    def before() -> None:
        assert shell.args == []
        made.append("it")

    shell, kube = Recording(), scripted({JOB: existing_rayjob("other-1", jobStatus="RUNNING")})
    with pytest.raises(SubmissionFailed, match="there is a RayJob mine already; it is RUNNING") as caught:
        submit(shell, kube, submission(code), before=before)
    assert "delete rayjob mine" in caught.value.hint
    assert (made, shell.args, kube.deleted) == ([], [], [])
    submit(shell, scripted({JOB: None}), submission(code), before=before)
    assert made == ["it"]


# --- what is there already --------------------------------------------------------------------


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
        self, method: str, path: str, query: Mapping[str, str], body: Mapping[str, Any] | None = None
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
