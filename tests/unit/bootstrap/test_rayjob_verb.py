"""Tests `submit --job`: what of the RayJob reaches the job, and what is refused or applied before."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml

from bootstrap.errors import NotARayJob
from bootstrap.targets.forwarded import ForwardedAccess
from bootstrap.verbs.submit import Request
from rayside.console import Console
from rayside.errors import CommandFailed, InvalidArgument, SubmissionFailed
from rayside.ray.debug import Debug
from rayside.system.shell import Outcome, Shell
from rayside.verbs import submitting
from tests.instances import instance
from tests.unit.scripted_rayjob import rayjob, scripted

CODE = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "code"}}


class Kubectl(Shell):
    """Keeps what kubectl is to apply, and fails where it is told to."""

    def __init__(self, fails: str = "") -> None:
        super().__init__()
        self.fails = fails
        self.args: list[str] = []
        self.applied: Any = None

    def run(self, args: Sequence[str | Path], **_: Any) -> Outcome:
        assert not self.args, "run twice"
        self.args = [str(arg) for arg in args]
        file = Path(self.args.pop())
        assert file.parent.stat().st_mode & 0o077 == 0
        self.applied = json.loads(file.read_text())
        if self.fails:
            raise CommandFailed(f"kubectl apply ended with 1\n{self.fails}", hint="")
        return Outcome(0, "configmap/code serverside-applied\n", "")


def access(shell: Shell) -> ForwardedAccess:
    kube = scripted({})
    programs = Path("/bin/kubectl-ray"), Path("/ray/bin")
    context: Any = SimpleNamespace(kubectl=Path("/bin/kubectl"))
    return ForwardedAccess(instance(), kube, cast(Any, None), context, shell, *programs)


def test_a_printed_runtime_env_is_for_no_rayjob() -> None:
    request = Request(job="job.yaml", debug=Debug())
    with pytest.raises(InvalidArgument) as refused:
        submitting.print_runtime_env(access(Kubectl()), Console(), request, wait=False)
    assert refused.value.message == "--print-runtime-env submits nothing"
    assert refused.value.hint == "leave out --job"


def test_what_a_rayjob_reserves_and_its_metadata_reach_the_job() -> None:
    job = rayjob(entrypoint="python /home/ray/samples/job.py", entrypointNumCpus=0.5, metadata={"team": "a"})
    submitted = Request(job="job.yaml").completed(job)
    assert submitted.entrypoint == "python /home/ray/samples/job.py"
    assert submitted.reserved == {"entrypoint_num_cpus": 0.5}
    assert submitted.all_metadata()["team"] == "a"
    # Also where it has no entrypoint, and so runs the example.
    assert Request(job="job.yaml").completed(rayjob(entrypointNumGpus=1)).reserved == {
        "entrypoint_num_gpus": 1
    }
    assert Request(entrypoint="python -m a").completed(None).reserved == {}


def test_a_cluster_without_a_relay_is_no_place_to_debug() -> None:
    job = rayjob(rayClusterSpec={"authOptions": {"mode": "token"}}, entrypoint="python a.py")
    assert Request(job="job.yaml").completed(job).entrypoint == "python a.py"
    with pytest.raises(NotARayJob, match=r"job\.yaml makes a Ray cluster without a relay") as caught:
        Request(job="job.yaml", debug=Debug()).completed(job)
    assert "example/ray-job.interactive-mode.yaml" in caught.value.hint


def test_a_rayjob_for_another_cluster_is_refused_before_anything_is_made() -> None:
    shell = Kubectl()
    job = rayjob(clusterSelector={"ray.io/cluster": "theirs"}, entrypoint="python a.py")
    submission = Request(job="job.yaml").completed(job)

    def before() -> None:
        raise AssertionError("applied")

    with pytest.raises(NotARayJob, match="is for the RayCluster theirs, and this one is rayside"):
        access(shell).submit_rayjob(job, submission, "m-1", lambda _: None, before)
    assert shell.args == []


def test_other_objects_are_applied_by_kubectl() -> None:
    shell = Kubectl()
    document = yaml.safe_load("{apiVersion: v1, kind: Secret, data: {since: 2026-01-01}}")
    assert access(shell).apply([CODE, document]) == ["configmap/code serverside-applied"]
    assert shell.args[:2] == ["/bin/kubectl", "--kubeconfig"]
    assert shell.args[-5:] == ["--namespace", "default", "apply", "--server-side", "--filename"]
    assert shell.applied["items"] == [CODE, {**document, "data": {"since": "2026-01-01"}}]


def test_what_kubectl_can_not_apply_is_told_in_its_words() -> None:
    shell = Kubectl(fails='error: namespace "a" does not match the namespace "default"')
    with pytest.raises(SubmissionFailed, match='beside the RayJob: error: namespace "a" does not match'):
        access(shell).apply([CODE])
