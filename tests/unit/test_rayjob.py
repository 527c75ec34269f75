"""RayJobs: what is refused before anything is sent, the command that sends it, when waiting is in vain."""

from __future__ import annotations

import base64
import copy
import json
import shlex
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from bootstrap.errors import (
    ClusterUnreachable,
    CommandFailed,
    ImageMissing,
    InvalidYaml,
    JobFailed,
    NamespaceTerminating,
    NotARayJob,
    NotInteractive,
    NotReady,
    OperatorNotRunning,
    PodFailed,
    RaysideError,
    SubmissionFailed,
)
from bootstrap.kube import rayjob
from bootstrap.kube.api import Kube
from bootstrap.ray import jobs
from bootstrap.settings import RAY_VERSION, ROOT
from bootstrap.shell import Outcome, Shell

EXAMPLE = ROOT / "example" / "ray-job.interactive-mode.yaml"
JOB = "/apis/ray.io/v1/namespaces/default/rayjobs/mine"
NAMESPACE = "/api/v1/namespaces/default"
ACTIVE: dict[str, Any] = {"status": {"phase": "Active"}}


# --- a user's file -----------------------------------------------------------------------


def document(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": "mine"},
        "spec": {
            "submissionMode": "InteractiveMode",
            "clusterSelector": {"ray.io/cluster": "rayside"},
            **spec,
        },
    }


def load(folder: Path, content: Any) -> dict[str, Any]:
    file = folder / "job.yaml"
    file.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return rayjob.load(file, "default")


def test_a_good_file_is_taken_as_it_is(tmp_path: Path) -> None:
    assert load(tmp_path, document(backoffLimit=0)) == document(backoffLimit=0)
    named = {**document(), "metadata": {"name": "mine", "namespace": "default"}}
    assert load(tmp_path, named) == named


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("kind: RayJob\nspec: [a\nb: c\n", r"job\.yaml, line 3, column \d+: .*expected"),
        ("kind: RayJob\n---\nkind: RayJob\n", "line 2, column 1: expected a single document"),
        ("# nothing\n", "is empty"),
        ("\xff", "is not text"),
    ],
)
def test_a_file_that_is_no_single_yaml_document_is_refused_with_its_place(
    tmp_path: Path, text: str, says: str
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text, encoding="latin-1")
    with pytest.raises(InvalidYaml, match=says):
        rayjob.load(file, "default")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidYaml, match="can't be read: No such file"):
        rayjob.load(tmp_path / "absent.yaml", "default")


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"kind": "RayCluster"}, r"is a RayCluster of ray\.io/v1, not a RayJob"),
        ({"apiVersion": "ray.io/v1alpha1"}, r"is a RayJob of ray\.io/v1alpha1"),
        ({"kind": None}, "is a document without a kind"),
        ({"metadata": None}, "has no metadata"),
        ({"spec": "InteractiveMode"}, "has no spec"),
        ({"metadata": {}}, "has no name"),
        ({"metadata": {"generateName": "mine-"}}, "has no name, only a generateName"),
        ({"metadata": {"name": "Mine"}}, "the name 'Mine', which KubeRay refuses"),
        ({"metadata": {"name": "m" * 48}}, "which KubeRay refuses"),
        ({"metadata": {"name": "mine", "namespace": "team"}}, "for the namespace team, and .* default"),
    ],
)
def test_what_is_no_rayjob_of_ours_is_refused(tmp_path: Path, changed: dict[str, Any], says: str) -> None:
    with pytest.raises(NotARayJob, match=says):
        load(tmp_path, {**document(), **changed})


def test_a_list_is_no_rayjob(tmp_path: Path) -> None:
    with pytest.raises(NotARayJob, match="is not a RayJob but a list"):
        load(tmp_path, [document()])


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"clusterSelector": None}, "neither a rayClusterSpec nor a clusterSelector"),
        ({"rayClusterSpec": {"headGroupSpec": {}}}, "both"),
        ({"clusterSelector": {"app": "ray"}}, "names no cluster"),
        ({"clusterSelector": None, "rayClusterSpec": "big"}, "not a mapping"),
    ],
)
def test_a_rayjob_needs_one_cluster(tmp_path: Path, spec: dict[str, Any], says: str) -> None:
    with pytest.raises(NotARayJob, match=says):
        load(tmp_path, document(**spec))


def test_a_rayjob_that_does_not_wait_for_a_submission_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotInteractive, match="submissionMode HTTPMode") as caught:
        load(tmp_path, document(submissionMode="HTTPMode"))
    assert "submissionMode: InteractiveMode" in caught.value.hint
    absent = document()
    del absent["spec"]["submissionMode"]
    with pytest.raises(NotInteractive, match="K8sJobMode"):  # KubeRay's default
        load(tmp_path, absent)
    with pytest.raises(NotInteractive, match="backoffLimit 2"):
        load(tmp_path, document(backoffLimit=2))


def test_a_broken_runtime_env_inside_is_refused_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(InvalidYaml, match="runtimeEnvYAML of the RayJob mine, line 2"):
        load(tmp_path, document(runtimeEnvYAML="pip: [a\nenv: b\n"))
    with pytest.raises(InvalidYaml, match="not a mapping"):
        load(tmp_path, document(runtimeEnvYAML="- a"))


# --- our own -----------------------------------------------------------------------------


def test_the_example_brings_its_own_cluster_with_the_workspace() -> None:
    spec = rayjob.load(EXAMPLE, "default")["spec"]["rayClusterSpec"]
    assert spec["rayVersion"] == RAY_VERSION
    assert spec["authOptions"] == {"mode": "token"}
    pod = spec["headGroupSpec"]["template"]["spec"]
    ray, workspace, relay = pod["containers"]
    assert [one["name"] for one in (ray, workspace, relay)] == ["ray-head", "workspace", "relay"]
    assert workspace["ports"] == [{"name": "workspace", "containerPort": 8443}]
    # The same folder, in both, on the one volume.
    shared, token = {"name": "ray", "mountPath": "/tmp/ray"}, {"name": "token", "mountPath": "/run/ray"}
    read_only = {**token, "readOnly": True}
    assert (ray["volumeMounts"], workspace["volumeMounts"]) == ([shared, token], [shared, read_only])
    assert relay["volumeMounts"] == [{**shared, "readOnly": True}, read_only]
    memory = {"name": "token", "emptyDir": {"medium": "Memory"}}
    assert pod["volumes"] == [{"name": "ray", "emptyDir": {}}, memory]
    # An image that is only in the node must not be pulled.
    groups = [pod, spec["workerGroupSpecs"][0]["template"]["spec"]]
    policies = {one["imagePullPolicy"] for group in groups for one in group["containers"]}
    assert policies == {"IfNotPresent"}


def test_the_rayjob_of_a_standing_cluster_is_the_template_with_both_names() -> None:
    made = rayjob.standing("train-1a2b3c", "mine")
    template = yaml.safe_load(rayjob.TEMPLATE.read_text())
    assert made["metadata"]["name"] == "train-1a2b3c"
    assert made["spec"].pop("clusterSelector") == {"ray.io/cluster": "mine"}
    template["spec"].pop("clusterSelector")
    assert made["spec"] == template["spec"]
    assert made["metadata"]["labels"] == template["metadata"]["labels"]


def test_our_own_rayjobs_pass_our_own_checks(tmp_path: Path) -> None:
    load(tmp_path, rayjob.standing("01_Intro.x-1a2b3c", "rayside"))
    rayjob.load(rayjob.TEMPLATE, "default")


@pytest.mark.parametrize(
    ("submission_id", "name"),
    [
        ("train-1a2b3c", "train-1a2b3c"),
        ("01-intro-1a2b3c", "job-01-intro-1a2b3c"),
        ("My_Job", "my-job"),
        ("x" * 60 + "-1a2b3c", "x" * 40 + "-1a2b3c"),
        ("9" * 60, "job-" + "9" * 43),
        ("___", "job"),
    ],
)
def test_a_submission_id_gives_a_name_that_kuberay_takes(submission_id: str, name: str) -> None:
    assert rayjob.object_name(submission_id) == name


@pytest.mark.parametrize(
    ("status", "kind", "says"),
    [
        ({"jobDeploymentStatus": "Waiting"}, None, ""),
        ({"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}, None, ""),
        ({}, None, ""),
        (
            {
                "jobDeploymentStatus": "ValidationFailed",
                "reason": "ValidationFailed",
                "message": "The RayJob spec is invalid",
            },
            SubmissionFailed,
            "KubeRay gave RayJob mine up: ValidationFailed: The RayJob spec is invalid",
        ),
        (
            {"jobDeploymentStatus": "Failed", "reason": "AppFailed", "message": "exit 1", "jobId": "m-1"},
            JobFailed,
            "RayJob mine failed: AppFailed: exit 1",
        ),
        ({"jobDeploymentStatus": "Failed"}, SubmissionFailed, "it gave no reason"),
    ],
)
def test_what_kuberay_gave_up_is_told(
    status: dict[str, str], kind: type[RaysideError] | None, says: str
) -> None:
    found = rayjob.problem({**document(), "status": status})
    assert type(found) is (kind or type(None))
    assert found is None or says in found.message


# --- Kubernetes, scripted ----------------------------------------------------------------


@dataclass(frozen=True)
class Scripted(Kube):
    """Answers by `METHOD path`, with `?selector` where there is one; anything else fails.

    A list is the items of a list, and what was deleted is no more there.
    """

    script: dict[str, Any] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)

    def _call(self, method: str, path: str, query: dict[str, str]) -> dict[str, Any] | None:
        if method == "DELETE":
            self.deleted.append(path)
            self.script[path] = None
            return None
        key = path + "".join(f"?{value}" for value in query.values())
        answer = self.script[key]
        if isinstance(answer, RaysideError):
            raise answer
        return {"items": answer} if isinstance(answer, list) else answer


def scripted(script: dict[str, Any]) -> Scripted:
    return Scripted(Path("/k/config"), "kind-rayside", script={NAMESPACE: ACTIVE, **script})


def there(submission_id: str = "m-1", **status: str) -> dict[str, Any]:
    """The RayJob as kubectl-ray made it."""
    return {**document(jobId=submission_id), "status": status}


def guard(script: dict[str, Any], token_file: Path | None = None) -> rayjob.Guard:
    return rayjob.Guard(scripted(script), "mine", "m-1", token_file)


OPERATORS = f"/apis/apps/v1/deployments?{rayjob.OPERATOR}"
PODS = f"{NAMESPACE}/pods?ray.io/cluster=mine-x"
CLUSTER_EVENTS = f"{NAMESPACE}/events?involvedObject.kind=RayCluster,involvedObject.name=mine-x"


def pod(state: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    status = {"name": "ray-head", "image": "rayside/ray:current", "ready": False, "state": state}
    conditions = [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "False"}]
    return {
        "metadata": {"name": "head", "uid": "u", **metadata},
        "spec": {"containers": [{"name": "ray-head"}]},
        "status": {"phase": "Pending", "conditions": conditions, "containerStatuses": [status]},
    }


def no_events(kind: str, name: str, namespace: str = "default") -> str:
    path = f"/api/v1/namespaces/{namespace}/events"
    return f"{path}?involvedObject.kind={kind},involvedObject.name={name}"


def test_a_rayjob_that_is_not_made_yet_or_anothers_is_left_alone() -> None:
    assert guard({JOB: None}).look(100) is None
    assert guard({JOB: there("other-1", jobDeploymentStatus="Failed")}).look(100) is None


def test_a_rayjob_that_gets_no_cluster_is_given_some_time() -> None:
    one = guard({JOB: there()})
    assert one.look(100) is None
    assert one.look(119.9) is None


def test_an_operator_that_is_not_there() -> None:
    one = guard({JOB: there(), OPERATORS: []})
    one.look(100)
    found = one.look(120)
    assert isinstance(found, OperatorNotRunning)
    assert "has no KubeRay operator" in found.message
    assert "./invokew up" in found.hint


def test_an_operator_that_does_not_run_is_explained_by_its_pod() -> None:
    operator = {"metadata": {"namespace": "kuberay-system"}, "status": {"replicas": 1}}
    waits = pod({"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling"}})
    one = guard(
        {
            JOB: there(),
            OPERATORS: [operator],
            f"/api/v1/namespaces/kuberay-system/pods?{rayjob.OPERATOR}": [waits],
            no_events("Pod", "head", "kuberay-system"): [],
        }
    )
    one.look(100)
    found = one.look(120)
    assert isinstance(found, OperatorNotRunning)
    assert "nothing becomes of RayJob mine" in found.message
    assert "Back-off pulling" in found.message


def test_an_operator_that_runs_and_does_nothing_is_told_with_the_last_event() -> None:
    operator = {"metadata": {"namespace": "default"}, "status": {"readyReplicas": 1}}
    event = {"message": "the webhook timed out", "lastTimestamp": "2026-01-01T00:00:00Z"}
    one = guard({JOB: there(), OPERATORS: [operator], no_events("RayJob", "mine"): [event]})
    one.look(100)
    found = one.look(120)
    assert isinstance(found, NotReady)
    assert "within 20 s: the webhook timed out" in found.message


def test_a_rayjob_that_kuberay_refuses_is_seen_at_once() -> None:
    refused = there(jobDeploymentStatus="ValidationFailed", message="name too long")
    assert isinstance(guard({JOB: refused}).look(100), SubmissionFailed)


def test_a_job_that_ray_has_is_no_more_the_guards_concern() -> None:
    failed = there(jobDeploymentStatus="Failed", jobStatus="FAILED", reason="AppFailed")
    assert guard({JOB: failed}).look(100) is None


def test_a_namespace_that_goes_is_seen_at_once() -> None:
    one = guard({JOB: there(), NAMESPACE: {"status": {"phase": "Terminating"}}})
    assert isinstance(one.look(100), NamespaceTerminating)


def test_a_pod_that_can_not_run_is_told_once_that_lasts() -> None:
    sick = pod({"waiting": {"reason": "ErrImagePull", "message": "not found"}})
    script = {JOB: there(rayClusterName="mine-x"), PODS: [sick], no_events("Pod", "head"): []}
    one = guard(script)
    assert one.look(100) is None
    assert one.look(104) is None
    assert isinstance(one.look(105), ImageMissing)
    # A container that was started again, and runs, starts the count anew.
    other = guard(script)
    other.look(100)
    other.kube.script[PODS] = [pod({"running": {}})]  # type: ignore[attr-defined]
    other.look(104)
    other.kube.script[PODS] = [sick]  # type: ignore[attr-defined]
    assert other.look(105) is None


def test_a_cluster_without_pods_is_explained_by_its_events() -> None:
    event = {
        "type": "Warning",
        "reason": "FailedToCreateHeadPod",
        "message": "Failed to create head Pod default/, pods is forbidden: exceeded quota",
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }
    one = guard({JOB: there(rayClusterName="mine-x"), PODS: [], CLUSTER_EVENTS: [event]})
    one.look(100)
    found = one.look(105)
    assert isinstance(found, PodFailed)
    assert "exceeded quota" in found.message


def test_what_the_pods_wait_for_is_told_once() -> None:
    one = guard(
        {JOB: there(rayClusterName="mine-x"), PODS: [pod({"running": {}})], no_events("Pod", "head"): []}
    )
    said: list[str] = []
    one.report = said.append
    one.look(100)
    one.look(101)
    assert said == ["pod head: ray-head is starting"]
    assert "pod head: ray-head is starting" in one.not_ready().message


def secret(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": {"auth_token": base64.b64encode(b"s3cret").decode()}}


def test_the_token_of_the_jobs_own_cluster_is_kept_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("stale")
    by_label = f"{NAMESPACE}/secrets?ray.io/cluster=mine-x"
    running = {PODS: [pod({"running": {}})], no_events("Pod", "head"): []}
    one = guard({JOB: there(rayClusterName="mine-x"), by_label: [], **running}, file)
    one.look(100)
    assert file.read_text() == "stale"
    one.kube.script[by_label] = [{"metadata": {"name": "other"}}, secret("mine-x")]  # type: ignore[attr-defined]
    one.look(101)
    assert file.read_text() == "s3cret"
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["token"]
    # Kept once: what is not scripted any more is not asked for.
    del one.kube.script[by_label]  # type: ignore[attr-defined]
    one.look(102)


def test_a_token_secret_that_the_file_names_is_read_by_its_name(tmp_path: Path) -> None:
    own = there(rayClusterName="mine-x")
    own["spec"]["rayClusterSpec"] = {"authOptions": {"mode": "token", "secretName": "given"}}
    script = {JOB: own, f"{NAMESPACE}/secrets/given": secret("given")}
    one = guard({**script, PODS: [pod({"running": {}})], no_events("Pod", "head"): []}, tmp_path / "token")
    one.look(100)
    assert (tmp_path / "token").read_text() == "s3cret"


# --- the submission ----------------------------------------------------------------------


class Recording(Shell):
    """Runs nothing: keeps what it was told to run, and its files, and ends as it was told to end."""

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
    monkeypatch.setattr(rayjob, "_PAUSE", 0.005)


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
    kubectl = rayjob.KubectlRay(shell, kube, Path("/bin/kubectl-ray"), Path("/ray/bin"))
    url, token = "http://127.0.0.1:8265", Path("/s/token")
    kubectl.submit(manifest or document(), job, "m-1", url=url, token_file=token)


def test_the_command_says_all_that_rays_own_says(code: Path) -> None:
    shell = Recording()
    submit(shell, scripted({JOB: None}), submission(code, "python train.py --name 'a b'"))
    assert shell.args[:4] == ["/bin/kubectl-ray", "job", "submit", "--filename"]
    assert json.loads(shell.files["--filename"]) == document()
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
    assert metadata[jobs.WORKING_DIR] == str(code)
    assert json.loads(metadata[jobs.PY_MODULES]) == [str(code / "model")]
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
    submit(shell, scripted({JOB: None}), job, document(runtimeEnvYAML=inside))
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
    own = document(clusterSelector=None, rayClusterSpec={"headGroupSpec": {}})
    submit(shell, scripted({JOB: None}), submission(code), own)
    assert shell.env["RAY_AUTH_MODE"] == "disabled"
    assert "RAY_AUTH_TOKEN_PATH" not in shell.env


def test_the_head_of_the_jobs_own_cluster_is_found_by_a_label(code: Path) -> None:
    shell = Recording()
    own = document(clusterSelector=None, rayClusterSpec={"headGroupSpec": {"template": {"spec": {}}}})
    before = copy.deepcopy(own)
    submit(shell, scripted({JOB: None}), submission(code), own)
    sent = json.loads(shell.files["--filename"])["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]
    labels = {**sent["metadata"]["labels"], "ray.io/node-type": "head"}
    assert ",".join(f"{key}={value}" for key, value in labels.items()) == rayjob.head_selector("mine")
    assert own == before


def test_kubectl_ray_that_was_ended_says_that_all_is_well(code: Path) -> None:
    """It ends with exit code 0 where it is told to end: what the guard found counts."""
    kube = made()

    class Ended(Recording):
        def run(self, *args: Any, **more: Any) -> Outcome:
            kube.script[JOB] = there(jobDeploymentStatus="ValidationFailed", message="too long")
            assert looked.wait(10)
            return Outcome(0, "", "")

    looked = threading.Event()
    kubectl = rayjob.KubectlRay(Ended(), kube, Path("/bin/kubectl-ray"), Path("/ray/bin"))
    object.__setattr__(kubectl, "_end", lambda _: looked.set())
    with pytest.raises(SubmissionFailed, match="gave RayJob mine up: too long"):
        kubectl.submit(document(), submission(code), "m-1", url="u", token_file=Path("/s/token"))
    assert kube.deleted == [JOB]


def test_a_rayjob_of_that_name_is_not_touched(code: Path) -> None:
    shell, kube = Recording(), scripted({JOB: there("other-1", jobStatus="RUNNING")})
    with pytest.raises(SubmissionFailed, match="there is a RayJob mine already; it is RUNNING") as caught:
        submit(shell, kube, submission(code))
    assert "delete rayjob mine" in caught.value.hint
    assert (shell.args, kube.deleted) == ([], [])


def test_what_an_interrupted_try_left_is_made_again(code: Path) -> None:
    shell, kube = Recording(), scripted({JOB: there("m-1", jobDeploymentStatus="Running")})
    submit(shell, kube, submission(code))  # no token file, so no Ray job either
    assert kube.deleted == [JOB]
    assert shell.args


def test_nothing_is_made_in_a_namespace_that_goes(code: Path) -> None:
    shell = Recording()
    with pytest.raises(NamespaceTerminating, match="namespace default is being deleted"):
        submit(shell, scripted({NAMESPACE: {"status": {"phase": "Terminating"}}}), submission(code))
    assert shell.args == []


class Made(Scripted):
    """The RayJob is there once it was asked for twice: before kubectl-ray ran, and after it failed."""

    def _call(self, method: str, path: str, query: dict[str, str]) -> dict[str, Any] | None:
        answer = super()._call(method, path, query)
        if method == "GET" and path == JOB and not self.deleted:
            self.script[JOB] = there()
        return answer


def made() -> Made:
    return Made(Path("/k/config"), "kind-rayside", script={NAMESPACE: ACTIVE, JOB: None})


RAYS_WORDS = """kubectl-ray job submit
ended with exit code 1
Submitted RayJob mine.
Running Ray submit job command...
Traceback (most recent call last):
RuntimeError: Request failed with status code 500: no such package.
Error: Error occurred with Ray job submit: exit status 1"""


def test_what_ray_refuses_is_told_in_its_words_and_leaves_no_rayjob(code: Path) -> None:
    kube = made()
    with pytest.raises(SubmissionFailed, match=r"was not submitted: RuntimeError: .*no such package"):
        submit(Recording(CommandFailed(RAYS_WORDS, hint="")), kube, submission(code))
    assert kube.deleted == [JOB]


def test_an_interruption_leaves_no_rayjob(code: Path) -> None:
    kube = made()
    with pytest.raises(KeyboardInterrupt):
        submit(Recording(KeyboardInterrupt()), kube, submission(code))
    assert kube.deleted == [JOB]


def test_a_rayjob_that_came_from_elsewhere_meanwhile_is_not_deleted(code: Path) -> None:
    kube = scripted({JOB: None})
    failed = CommandFailed('it\nError: rayjobs.ray.io "mine" already exists', hint="")

    class Raced(Recording):
        def run(self, *args: Any, **more: Any) -> Outcome:
            kube.script[JOB] = there("other-1")
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
