"""Tests the documents of RayJobs: what is refused before anything is sent, and what Rayside makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from bootstrap.errors import NotARayJob, NotInteractive
from bootstrap.kube.rayjob import document
from bootstrap.settings import ROOT
from rayside.errors import InvalidYaml, JobFailed, RaysideError, SubmissionFailed
from tests.instances import instance
from tests.unit.scripted_rayjob import rayjob

EXAMPLE = ROOT / "example" / "ray-job.interactive-mode.yaml"


# --- a user's file -----------------------------------------------------------------------


def load(folder: Path, content: Any) -> dict[str, Any]:
    file = folder / "job.yaml"
    file.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return document.load(file, "default")


def test_a_good_file_is_taken_as_it_is(tmp_path: Path) -> None:
    assert load(tmp_path, rayjob(backoffLimit=0)) == rayjob(backoffLimit=0)
    named = {**rayjob(), "metadata": {"name": "mine", "namespace": "default"}}
    assert load(tmp_path, named) == named


@pytest.mark.parametrize(
    ("text", "message_part"),
    [
        ("kind: RayJob\nspec: [a\nb: c\n", r"job\.yaml, line 3, column \d+: .*expected"),
        (
            "kind: ConfigMap\n---\nkind: RayJob\nspec: [a\nb: c\n",
            r"job\.yaml, line 5, column \d+: .*expected",
        ),
        ("# nothing\n", "is empty"),
        ("\xff", "is not text"),
    ],
)
def test_a_file_that_is_no_yaml_is_refused_by_place(tmp_path: Path, text: str, message_part: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text, encoding="latin-1")
    with pytest.raises(InvalidYaml, match=message_part):
        document.load(file, "default")
    with pytest.raises(InvalidYaml, match="can't be read: No such file"):
        document.load(tmp_path / "absent.yaml", "default")


def test_of_several_objects_the_rayjob_is_taken(tmp_path: Path) -> None:
    code = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "code"}}
    text = f"---\n{yaml.safe_dump(code)}---\n# nothing\n---\n{yaml.safe_dump(rayjob())}---\n"
    assert load(tmp_path, text) == rayjob()
    assert document.beside(tmp_path / "job.yaml") == [code]
    load(tmp_path, rayjob())
    assert document.beside(tmp_path / "job.yaml") == []
    for others, message in (
        ([rayjob(), rayjob()], "2 of the 2 objects in .* are RayJobs"),
        ([code, code], "0 of the 2 objects in .* are RayJobs"),
        ([rayjob(), [1]], "is not a RayJob but a list"),
        ([[rayjob()]], "is not a RayJob but a list"),
    ):
        with pytest.raises(NotARayJob, match=message):
            load(tmp_path, yaml.safe_dump_all(others))


@pytest.mark.parametrize(
    ("changed", "message_part"),
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
        # It needs one cluster.
        (rayjob(clusterSelector=None), "neither a rayClusterSpec nor a clusterSelector"),
        (rayjob(rayClusterSpec={"headGroupSpec": {}}), "both"),
        (rayjob(clusterSelector={"app": "ray"}), "names no cluster"),
        (rayjob(clusterSelector=None, rayClusterSpec="big"), "not a mapping"),
    ],
)
def test_what_is_no_rayjob_is_refused(tmp_path: Path, changed: dict[str, Any], message_part: str) -> None:
    with pytest.raises(NotARayJob, match=message_part):
        load(tmp_path, {**rayjob(), **changed})


def test_a_rayjob_that_does_not_wait_for_a_submission_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotInteractive, match="submissionMode HTTPMode") as caught:
        load(tmp_path, rayjob(submissionMode="HTTPMode"))
    assert "submissionMode: InteractiveMode" in caught.value.hint
    absent = rayjob()
    del absent["spec"]["submissionMode"]
    with pytest.raises(NotInteractive, match="K8sJobMode"):  # KubeRay's default
        load(tmp_path, absent)
    with pytest.raises(NotInteractive, match="backoffLimit 2"):
        load(tmp_path, rayjob(backoffLimit=2))


def test_a_broken_runtime_env_inside_is_refused_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(InvalidYaml, match="runtimeEnvYAML of the RayJob mine, line 2"):
        load(tmp_path, rayjob(runtimeEnvYAML="pip: [a\nenv: b\n"))
    with pytest.raises(InvalidYaml, match="not a mapping"):
        load(tmp_path, rayjob(runtimeEnvYAML="- a"))


def own_cluster(**cluster: Any) -> dict[str, Any]:
    job = rayjob(rayClusterSpec={"authOptions": {"mode": "token"}, "headGroupSpec": {}, **cluster})
    del job["spec"]["clusterSelector"]
    return job


@pytest.mark.parametrize("options", [None, {}, {"mode": "disabled"}, {"secretName": "mine"}])
def test_a_cluster_that_lets_everybody_in_is_refused(tmp_path: Path, options: Any) -> None:
    load(tmp_path, own_cluster())
    with pytest.raises(NotARayJob, match="asks for no token") as caught:
        load(tmp_path, own_cluster(authOptions=options))
    assert "set authOptions: {mode: token}" in caught.value.hint


def test_fields_without_a_value_count_as_absent(tmp_path: Path) -> None:
    pod = {"containers": [{"name": "ray-head", "env": None, "volumeMounts": None}], "volumes": None}
    head = {"template": {"metadata": {"labels": None}, "spec": pod}}
    job = own_cluster(headGroupSpec=head, workerGroupSpecs=None)
    job["metadata"]["labels"] = job["spec"]["metadata"] = job["spec"]["entrypoint"] = None
    loaded = load(tmp_path, {**job, "spec": {**job["spec"], "clusterSelector": None}})
    assert "clusterSelector" not in loaded["spec"]
    assert document.queue(loaded) == ""
    submitted = document.with_own_cluster(document.with_workspace_secret(loaded, "mine-workspace"))
    (container,) = document.own_pods(submitted)[0]["containers"]
    assert container["env"] == [{"name": document.USAGE_REPORT, "value": "0"}]
    document.with_own_cluster(load(tmp_path, own_cluster(headGroupSpec=None)))


@pytest.mark.parametrize(
    ("job", "message_part"),
    [
        (own_cluster(authOptions="token"), r"spec\.rayClusterSpec\.authOptions .* not a mapping but a str"),
        (own_cluster(headGroupSpec=[]), r"headGroupSpec .* not a mapping but a list"),
        (own_cluster(workerGroupSpecs={"template": {}}), r"workerGroupSpecs .* not a list but a dict"),
        (
            own_cluster(workerGroupSpecs=[{"template": {"spec": {"containers": [{"env": ["A=1"]}]}}}]),
            r"workerGroupSpecs\[0\]\.template\.spec\.containers\[0\]\.env\[0\] .* not a mapping but a str",
        ),
        (rayjob(entrypoint=["python", "a.py"]), r"spec\.entrypoint .* not a text but a list"),
        (rayjob(entrypointNumCpus="1"), r"spec\.entrypointNumCpus .* not a number but a str"),
        (rayjob(entrypointResources={"TPU": 4}), r"spec\.entrypointResources .* not a text but a dict"),
        ({**rayjob(), "metadata": {"name": "mine", "labels": ["a"]}}, r"metadata\.labels .* not a mapping"),
    ],
)
def test_a_field_of_another_type_is_refused(tmp_path: Path, job: dict[str, Any], message_part: str) -> None:
    with pytest.raises(NotARayJob, match=message_part):
        load(tmp_path, job)


def test_what_the_entrypoint_reserves_has_rays_names(tmp_path: Path) -> None:
    job = rayjob(entrypointNumCpus=0.5, entrypointNumGpus=0, entrypointResources='{"TPU": 4}')
    reserved = {"entrypoint_num_cpus": 0.5, "entrypoint_resources": {"TPU": 4}}
    assert document.reserved(load(tmp_path, job)) == reserved
    assert document.reserved(rayjob()) == {}
    for text in ("TPU: 4", "[4]"):
        with pytest.raises(InvalidYaml, match="entrypointResources of the RayJob mine is no JSON object"):
            load(tmp_path, rayjob(entrypointResources=text))


def test_a_relay_is_found_beside_the_head(tmp_path: Path) -> None:
    assert document.has_relay(load(tmp_path, rayjob()))
    assert document.has_relay(document.load(EXAMPLE, "default"))
    assert not document.has_relay(load(tmp_path, own_cluster()))
    pod = {"containers": [{"name": "ray-head"}, {"name": "metrics"}]}
    assert not document.has_relay(load(tmp_path, own_cluster(headGroupSpec={"template": {"spec": pod}})))


# --- our own -----------------------------------------------------------------------------


def test_the_example_brings_its_own_cluster_with_the_workspace() -> None:
    spec = document.load(EXAMPLE, "default")["spec"]["rayClusterSpec"]
    assert spec["authOptions"] == {"mode": "token"}
    pod = spec["headGroupSpec"]["template"]["spec"]
    ray, workspace, relay = pod["containers"]
    assert [container["name"] for container in (ray, workspace, relay)] == ["ray-head", "workspace", "relay"]
    assert workspace["ports"] == [{"name": "workspace", "containerPort": 8443}]
    # The same folder, in both, on the one volume.
    shared, token = {"name": "ray", "mountPath": "/tmp/ray"}, {"name": "token", "mountPath": "/run/ray"}
    read_only = {**token, "readOnly": True}
    assert (ray["volumeMounts"], workspace["volumeMounts"]) == ([shared, token], [shared, read_only])
    assert relay["volumeMounts"] == [{**shared, "readOnly": True}, read_only]
    memory = {"name": "token", "emptyDir": {"medium": "Memory"}}
    assert pod["volumes"] == [{"name": "ray", "emptyDir": {}}, memory]


def test_the_rayjob_of_a_standing_cluster_is_the_template_with_both_names(tmp_path: Path) -> None:
    load(tmp_path, document.for_standing_cluster("01_Intro.x-1a2b3c", instance()))
    rayjob = document.for_standing_cluster("train-1a2b3c", instance("mine"))
    template = yaml.safe_load(document.TEMPLATE.read_text())
    assert rayjob["metadata"]["name"] == "train-1a2b3c"
    assert rayjob["spec"].pop("clusterSelector") == {"ray.io/cluster": "mine"}
    assert rayjob["spec"] == template["spec"]
    assert rayjob["metadata"]["labels"] == instance("mine").labels


def test_the_examples_password_is_that_of_the_cluster_that_is_up() -> None:
    example = yaml.safe_load(EXAMPLE.read_text())
    submitted = document.with_workspace_secret(example, "mine-workspace")
    _, workspace, _ = submitted["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"]
    password = next(variable for variable in workspace["env"] if variable["name"] == "PASSWORD")
    assert password["valueFrom"]["secretKeyRef"] == {"name": "mine-workspace", "key": "password"}
    assert "rayside-workspace" not in str(submitted)
    assert example == yaml.safe_load(EXAMPLE.read_text())


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
    assert document.object_name(submission_id) == name


def test_a_job_whose_cluster_has_gone_is_known_by_its_rayjob() -> None:
    status = {"jobStatus": "FAILED", "jobId": "m-1", "message": "exit code 3"}
    job = document.ended({**rayjob(), "status": status})
    assert job
    assert (job.submission_id, job.status, job.message) == ("m-1", "FAILED", "exit code 3")
    for other in ({}, {"jobStatus": "RUNNING"}):
        assert document.ended({**rayjob(), "status": other}) is None


@pytest.mark.parametrize(
    ("status", "kind", "message_part"),
    [
        ({"jobDeploymentStatus": "Waiting"}, None, ""),
        ({"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}, None, ""),
        ({}, None, ""),
        (
            {
                "jobDeploymentStatus": "ValidationFailed",
                "reason": "ValidationFailed",
                "message": "it is invalid",
            },
            SubmissionFailed,
            "KubeRay gave RayJob mine up: ValidationFailed: it is invalid",
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
    status: dict[str, str], kind: type[RaysideError] | None, message_part: str
) -> None:
    problem = document.problem({**rayjob(), "status": status})
    assert type(problem) is (kind or type(None))
    assert problem is None or message_part in problem.message
