"""RayJobs: a user's own file checked, one made for a standing cluster, and their submission by kubectl-ray.

What KubeRay accepts is in its ray-operator/controllers/ray/utils/validation.go (1.6.2), what
kubectl-ray does in kubectl-plugin/pkg/cmd/job/job_submit.go.
"""

from __future__ import annotations

import base64
import contextlib
import copy
import json
import os
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bootstrap import shell as processes
from bootstrap import yaml_file
from bootstrap.errors import (
    ClusterUnreachable,
    CommandFailed,
    InvalidYaml,
    JobFailed,
    JobNotFound,
    NamespaceTerminating,
    NotARayJob,
    NotInteractive,
    NotReady,
    OperatorNotRunning,
    PodFailed,
    RaysideError,
    SubmissionFailed,
)
from bootstrap.kube import trouble
from bootstrap.kube.api import CORE, RAY, Kube
from bootstrap.loopback import require_own_listener, without_proxy
from bootstrap.ray import jobs
from bootstrap.ray.state import Dashboard
from bootstrap.settings import ROOT
from bootstrap.shell import Shell
from bootstrap.step import until

TEMPLATE = ROOT / "k8s" / "ray-job.yaml"
API_VERSION = "ray.io/v1"
CLUSTER = "ray.io/cluster"
# Of the operator's Deployment, both in KubeRay's config/manager and in its Helm chart.
OPERATOR = "app.kubernetes.io/component=kuberay-operator"

# KubeRay gives it to the RayCluster that a RayJob makes, and not to that cluster's pods (constant.go).
_ORIGIN = "ray.io/originated-from-cr-name"
# An RFC 1035 label that leaves room for what KubeRay adds to it (validation.go, constant.go).
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LONGEST_NAME = 47
# Ray sends what it is used for to its makers, unless this is 0
# (https://docs.ray.io/en/latest/cluster/usage-stats.html).
_USAGE_REPORT = "RAY_USAGE_STATS_ENABLED"
# Marks kubectl-ray and the `ray` that it runs, so that both are found when they have to be ended.
_MARK = "RAYSIDE_SUBMISSION"
# Seconds between two looks, and how long KubeRay may take to name the cluster; 1 to 2 s were seen.
_PAUSE, _NAMING = 1.0, 20.0
# Seconds that a pod's trouble has to last: a container may be started again at once, and be well.
_SETTLING = 5.0
# Seconds until a RayJob that was deleted is gone: KubeRay stops its job first.
_REMOVAL = 30.0


# --- what is submitted -------------------------------------------------------------------


def load(file: Path, namespace: str) -> dict[str, Any]:
    """The RayJob in a user's YAML file, found to be one that can be submitted in `namespace`.

    Raises InvalidYaml, NotARayJob, NotInteractive.
    """
    document = yaml_file.read(file)
    if document is None:
        raise InvalidYaml(f"{file} is empty", hint="write a RayJob into it")
    if not isinstance(document, dict):
        raise NotARayJob(f"{file} is not a RayJob but a {type(document).__name__}", hint=_EXAMPLE)
    kind, version = document.get("kind"), document.get("apiVersion")
    if (kind, version) != ("RayJob", API_VERSION):
        raise NotARayJob(
            f"{file} is a {kind or 'document without a kind'} of {version or 'no apiVersion'}, "
            f"not a RayJob of {API_VERSION}",
            hint=_EXAMPLE,
        )
    metadata, spec = _mapping(document, "metadata", file), _mapping(document, "spec", file)
    _check_name(metadata, file)
    if metadata.get("namespace") not in (None, namespace):
        raise NotARayJob(
            f"{file} is for the namespace {metadata['namespace']}, and Rayside works in {namespace}",
            hint="remove metadata.namespace, or set the namespace in invoke.yaml",
        )
    mode = spec.get("submissionMode", "K8sJobMode")
    if mode != "InteractiveMode":
        raise NotInteractive(
            f"the RayJob in {file} has the submissionMode {mode}, which does not wait for a submission",
            hint="set submissionMode: InteractiveMode in its spec",
        )
    if spec.get("backoffLimit") not in (None, 0):
        raise NotInteractive(
            f"the RayJob in {file} has backoffLimit {spec['backoffLimit']}, which needs another mode",
            hint="set backoffLimit: 0 in its spec",
        )
    _check_cluster(spec, file)
    runtime_env(document)
    return document


def standing(submission_id: str, ray_cluster: str) -> dict[str, Any]:
    """The RayJob for a job on the RayCluster of that name, which is there already."""
    document = dict(yaml_file.read(TEMPLATE))
    document["metadata"] = {**document["metadata"], "name": object_name(submission_id)}
    document["spec"] = {**document["spec"], "clusterSelector": {CLUSTER: ray_cluster}}
    return document


def object_name(submission_id: str) -> str:
    """The RayJob's name for a submission id, which Ray lets be anything: its end, as a valid name."""
    name = re.sub("[^a-z0-9]+", "-", submission_id.lower())[-_LONGEST_NAME:].strip("-")
    return name if _NAME.fullmatch(name) else f"job-{name}"[:_LONGEST_NAME].rstrip("-")


def runtime_env(rayjob: Mapping[str, Any]) -> dict[str, Any]:
    """The runtime_env in a RayJob's runtimeEnvYAML. Raises InvalidYaml."""
    text = rayjob["spec"].get("runtimeEnvYAML") or ""
    loaded = yaml_file.parse(text, f"runtimeEnvYAML of the RayJob {rayjob['metadata']['name']}") or {}
    if not isinstance(loaded, dict):
        raise InvalidYaml("runtimeEnvYAML is not a mapping of runtime_env fields", hint="write `pip: [...]`")
    return loaded


def head_selector(name: str) -> str:
    """Labels of the head pod of the cluster that the RayJob of that name makes, once submitted here."""
    return f"{_ORIGIN}={name},ray.io/node-type=head"


def problem(rayjob: Mapping[str, Any]) -> RaysideError | None:
    """Why KubeRay gave the RayJob up; None where it did not."""
    name, status = rayjob["metadata"]["name"], rayjob.get("status") or {}
    if status.get("jobDeploymentStatus") not in ("Failed", "ValidationFailed"):
        return None
    said = ": ".join(status[key] for key in ("reason", "message") if status.get(key)) or "it gave no reason"
    if status.get("reason") == "AppFailed":
        job = status.get("jobId") or "ID"
        return JobFailed(f"RayJob {name} failed: {said}", hint=f"./invokew logs --job {job} shows its output")
    return SubmissionFailed(f"KubeRay gave RayJob {name} up: {said}", hint="correct what it names")


# --- its submission ----------------------------------------------------------------------


@dataclass(frozen=True)
class KubectlRay:
    """`kubectl ray job submit`, with an end to its waits.

    `ray_programs` is the folder of the `ray` that kubectl-ray runs.
    """

    shell: Shell
    kube: Kube
    program: Path
    ray_programs: Path

    def submit(
        self,
        rayjob: Mapping[str, Any],
        job: jobs.Submission,
        submission_id: str,
        *,
        url: str,
        token_file: Path,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Makes the RayJob, waits for its cluster, and submits `job` to the dashboard at `url`.

        `token_file` holds the token of the standing cluster; for a RayJob that makes its own
        cluster it is written, readable by its owner alone, as soon as there is a token. An earlier
        try of the same submission id that was cut off is taken up again. What fails takes the
        RayJob that it made with it. Raises SubmissionFailed, NotReady, PodFailed and its kin,
        OperatorNotRunning, NamespaceTerminating, ClusterUnreachable, MissingProgram, Interrupted.
        """
        name = rayjob["metadata"]["name"]
        require_namespace(self.kube)
        if self._submitted_before(name, submission_id, url, token_file):
            return
        own = "rayClusterSpec" in rayjob["spec"]
        guard = Guard(self.kube, name, submission_id, token_file if own else None, report)
        whole = replace(job, runtime_env={**_without_folders(runtime_env(rayjob)), **job.runtime_env})
        env = self.environment(submission_id, token_file if _has_token(rayjob) else None)
        with (
            tempfile.TemporaryDirectory(prefix="rayside-") as folder,
            jobs.private_environment(whole) as file,
        ):
            manifest = Path(folder, "rayjob.json")
            # YAML has dates, which Kubernetes reads as the text that they were.
            manifest.write_text(json.dumps(with_own_cluster(rayjob) if own else rayjob, default=str))
            command = self.command(manifest, whole, submission_id, url, file)
            require_own_listener(url)
            try:
                with guard.watching(lambda: self._end(submission_id)):
                    self.shell.run(command, env=env)
                if guard.found:  # kubectl-ray ends with 0 where it is told to end
                    raise guard.found
            except CommandFailed as error:
                found = guard.found or self._explained(guard, error)
                self._remove(guard)
                raise found from None
            except BaseException:
                self._remove(guard)
                raise

    def command(
        self, manifest: Path, job: jobs.Submission, submission_id: str, url: str, runtime_env: Path | None
    ) -> list[str]:
        """`manifest` is the RayJob's file, `runtime_env` that of `jobs.private_environment`."""
        return [
            *[str(self.program), "job", "submit", "--filename", str(manifest)],
            *["--kubeconfig", str(self.kube.kubeconfig), "--context", self.kube.context],
            *["--namespace", self.kube.namespace, "--address", url],
            *job.options(submission_id, runtime_env),
            # It joins the words with spaces and splits them again: quoted once more, as one.
            *["--", processes.printable(job.words())],
        ]

    def environment(self, submission_id: str, token_file: Path | None) -> dict[str, str]:
        """For kubectl-ray and the `ray` that it runs; the token only as a file's name."""
        unwanted = ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
        token = {"RAY_AUTH_TOKEN_PATH": str(token_file)} if token_file else {}
        return {
            **{name: value for name, value in os.environ.items() if name not in (*unwanted, "KUBECONFIG")},
            "PATH": f"{self.ray_programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "RAY_AUTH_MODE": "token" if token_file else "disabled",
            **token,
            _USAGE_REPORT: "0",
            **without_proxy(os.environ),
            _MARK: submission_id,
        }

    def _submitted_before(self, name: str, submission_id: str, url: str, token_file: Path) -> bool:
        """Whether Ray has the job already; removes what an earlier try of it left.

        Raises SubmissionFailed where the RayJob is another job's.
        """
        there = self.kube.ray("rayjobs", name)
        if there is None:
            return False
        if "deletionTimestamp" not in there["metadata"]:
            if there["spec"].get("jobId") != submission_id:
                status = there.get("status") or {}
                state = status.get("jobStatus") or status.get("jobDeploymentStatus") or "new"
                raise SubmissionFailed(
                    f"there is a RayJob {name} already; it is {state}",
                    hint=f"give yours another metadata.name, or: {self._removal(name)}",
                )
            if _known(url, token_file, submission_id):
                return True
            self.kube.delete(_path(self.kube, name))
        if until(lambda: self.kube.ray("rayjobs", name), lambda seen: seen is None, _REMOVAL) is not None:
            raise NotReady(
                f"the earlier RayJob {name} is still being removed after {_REMOVAL:g} s",
                hint="./invokew up mends the operator, which has to let it go",
            )
        return False

    def _removal(self, name: str) -> str:
        kubectl: list[str | Path] = [
            "kubectl",
            "--kubeconfig",
            self.kube.kubeconfig,
            "--context",
            self.kube.context,
        ]
        return processes.printable([*kubectl, "-n", self.kube.namespace, "delete", "rayjob", name])

    def _end(self, submission_id: str) -> None:
        processes.end(lambda: processes.marked(_MARK, submission_id), patience=2)

    def _remove(self, guard: Guard) -> None:
        # kubectl-ray may have made it a moment before it was ended, unseen.
        with contextlib.suppress(ClusterUnreachable):
            there = self.kube.ray("rayjobs", guard.name)
            if there and there["spec"].get("jobId") == guard.submission_id:
                self.kube.delete(_path(self.kube, guard.name))

    def _explained(self, guard: Guard, error: CommandFailed) -> RaysideError:
        said = error.message
        with contextlib.suppress(ClusterUnreachable):
            require_namespace(self.kube)
            if "Timed out waiting for cluster" in said:
                return guard.not_ready()
        if "rayclusters.ray.io" in said and "not found" in said:
            return NotReady("the RayCluster of this RayJob is gone", hint="./invokew up makes it again")
        return SubmissionFailed(
            f"the job was not submitted: {_reason(said)}", hint="./invokew status shows what is left"
        )


@dataclass
class Guard:
    """Looks at a RayJob, its operator and its pods while kubectl-ray waits for them.

    `token_file` is where the token of the RayJob's own cluster is written to; None where there is
    nothing to write. `found` is why waiting is in vain.
    """

    kube: Kube
    name: str
    submission_id: str
    token_file: Path | None
    report: Callable[[str], None] = lambda _: None
    found: RaysideError | None = None
    _began: float | None = None
    _troubled: float | None = None
    _cluster: str = ""
    _reported: str = ""
    _stop: threading.Event = field(default_factory=threading.Event)

    @contextlib.contextmanager
    def watching(self, end: Callable[[], None]) -> Iterator[None]:
        """Looks once a second in a thread; `end` is called once, when waiting was found to be in vain."""
        defects: list[BaseException] = []

        def thread() -> None:
            try:
                while not self._stop.wait(_PAUSE):
                    with contextlib.suppress(ClusterUnreachable):  # kubectl-ray notices by itself
                        self.found = self.look(time.monotonic())
                    if self.found:
                        return end()
            except BaseException as defect:  # raised in the caller's thread
                defects.append(defect)
                end()

        watcher = threading.Thread(target=thread, name=f"guard of {self.name}", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            self._stop.set()
            # A look may hang for longer than an interrupted command may take to end.
            watcher.join(timeout=1)
            if defects:
                raise defects[0]

    def look(self, now: float) -> RaysideError | None:
        """One look, at `now` seconds of a clock that only goes on. Raises ClusterUnreachable."""
        rayjob = self.kube.ray("rayjobs", self.name)
        if rayjob is None or rayjob["spec"].get("jobId") != self.submission_id:
            return None
        if self._began is None:
            self._began = now
        status = rayjob.get("status") or {}
        if status.get("jobStatus"):  # Ray has the job: what becomes of it is no more our concern
            return None
        if given_up := problem(rayjob):
            return given_up
        try:
            require_namespace(self.kube)
        except NamespaceTerminating as error:
            return error
        self._cluster = status.get("rayClusterName") or ""
        if not self._cluster:
            return self._unnamed() if now - self._began >= _NAMING else None
        if self.token_file is not None:
            self._keep_token(rayjob)
        trouble_now = trouble.first_problem(self.kube, self._selector) or self._refused()
        if trouble_now is None:
            self._troubled = None
            self._tell()
            return None
        if self._troubled is None:
            self._troubled = now
        return trouble_now if now - self._troubled >= _SETTLING else None

    def not_ready(self) -> RaysideError:
        """For when kubectl-ray's own patience with the cluster, 120 s, is over."""
        waits = "; ".join(self._waits())
        return NotReady(
            f"RayCluster {self._cluster} was not ready after 120 s{f': {waits}' if waits else ''}",
            hint="run the command again; ./invokew doctor shows what the machine lacks",
        )

    @property
    def _selector(self) -> str:
        return f"{CLUSTER}={self._cluster}"

    def _waits(self) -> list[str]:
        waits = {pod["metadata"]["name"]: trouble.waiting(pod) for pod in self.kube.pods(self._selector)}
        return [f"pod {name}: {wait}" for name, wait in waits.items() if wait]

    def _tell(self) -> None:
        waits = self._waits()
        if waits and waits[0] != self._reported:
            self._reported = waits[0]
            self.report(waits[0])

    def _unnamed(self) -> RaysideError:
        operators = self.kube.items("/apis/apps/v1/deployments", OPERATOR)
        if not operators:
            return OperatorNotRunning("this cluster has no KubeRay operator", hint="./invokew up installs it")
        if not any((operator.get("status") or {}).get("readyReplicas") for operator in operators):
            home = operators[0]["metadata"]["namespace"]
            why = trouble.first_problem(replace(self.kube, namespace=home), OPERATOR)
            return OperatorNotRunning(
                f"the KubeRay operator does not run, so nothing becomes of RayJob {self.name}"
                f"{f': {why.message}' if why else ''}",
                hint="./invokew up mends it",
            )
        events = [event.get("message", "") for event in self.kube.events("RayJob", self.name)]
        return NotReady(
            f"KubeRay gave RayJob {self.name} no cluster within {_NAMING:g} s"
            f"{f': {events[-1]}' if events else ''}",
            hint="./invokew up mends the operator",
        )

    def _refused(self) -> RaysideError | None:
        """A cluster of which KubeRay could make no pod, as where a quota is used up."""
        if self.kube.pods(self._selector):
            return None
        for event in reversed(self.kube.events("RayCluster", self._cluster)):
            if event["type"] == "Warning" and event["reason"].startswith("FailedToCreate"):
                return PodFailed(
                    f"KubeRay can't make a pod of RayCluster {self._cluster}: {event.get('message', '')}",
                    hint="correct what it names",
                )
        return None

    def _keep_token(self, rayjob: Mapping[str, Any]) -> None:
        assert self.token_file is not None
        given = ((rayjob["spec"].get("rayClusterSpec") or {}).get("authOptions") or {}).get("secretName")
        secrets = f"{CORE}/namespaces/{self.kube.namespace}/secrets"
        if given:
            found = [self.kube.get(f"{secrets}/{given}") or {}]
        else:  # by label: KubeRay shortens the name where it is long
            found = self.kube.items(secrets, self._selector)
        tokens = [secret["data"]["auth_token"] for secret in found if "auth_token" in secret.get("data", {})]
        if tokens:
            _write_private(self.token_file, base64.b64decode(tokens[0]))
            self.token_file = None


def require_namespace(kube: Kube) -> None:
    """Raises NamespaceTerminating where the namespace is being deleted; nothing can be made in it."""
    namespace = kube.get(f"{CORE}/namespaces/{kube.namespace}")
    if namespace and namespace["status"]["phase"] == "Terminating":
        raise NamespaceTerminating(
            f"the namespace {kube.namespace} is being deleted",
            hint="wait until it is gone and run ./invokew up, or set another namespace",
        )


_EXAMPLE = "example/ray-job.interactive-mode.yaml shows one"


def _mapping(document: Mapping[str, Any], key: str, file: Path) -> Mapping[str, Any]:
    value = document.get(key)
    if not isinstance(value, dict):
        raise NotARayJob(f"the RayJob in {file} has no {key}", hint=_EXAMPLE)
    return value


def _check_name(metadata: Mapping[str, Any], file: Path) -> None:
    name = metadata.get("name")
    if not name:
        generated = ", only a generateName" if "generateName" in metadata else ""
        raise NotARayJob(
            f"the RayJob in {file} has no name{generated}",
            hint="set metadata.name: without it the RayJob can't be found again",
        )
    if not isinstance(name, str) or len(name) > _LONGEST_NAME or not _NAME.fullmatch(name):
        raise NotARayJob(
            f"the RayJob in {file} has the name {name!r}, which KubeRay refuses",
            hint=f"use at most {_LONGEST_NAME} lower-case letters, digits and hyphens, a letter first",
        )


def _check_cluster(spec: Mapping[str, Any], file: Path) -> None:
    selector, own = spec.get("clusterSelector"), spec.get("rayClusterSpec")
    if not selector and not own:
        raise NotARayJob(
            f"the RayJob in {file} has neither a rayClusterSpec nor a clusterSelector",
            hint=f"name a cluster (clusterSelector: {{{CLUSTER}: rayside}}), or describe one",
        )
    if selector and own:
        raise NotARayJob(
            f"the RayJob in {file} has both a rayClusterSpec and a clusterSelector",
            hint="remove one of them",
        )
    if selector and not (isinstance(selector, dict) and selector.get(CLUSTER)):
        raise NotARayJob(
            f"the clusterSelector of the RayJob in {file} names no cluster",
            hint=f"write clusterSelector: {{{CLUSTER}: rayside}}",
        )
    if own and not isinstance(own, dict):
        raise NotARayJob(f"the rayClusterSpec of the RayJob in {file} is not a mapping", hint=_EXAMPLE)


def with_own_cluster(rayjob: Mapping[str, Any]) -> dict[str, Any]:
    """A RayJob that makes its own cluster, as it is submitted.

    With a label by which a forward finds the head pod before its cluster has a name, and without
    Ray's usage report, unless the RayJob itself says anything of it.
    """
    changed = copy.deepcopy(dict(rayjob))
    cluster = changed["spec"]["rayClusterSpec"]
    template = cluster.setdefault("headGroupSpec", {}).setdefault("template", {})
    labels = template.setdefault("metadata", {}).setdefault("labels", {})
    labels[_ORIGIN] = rayjob["metadata"]["name"]
    for group in (cluster["headGroupSpec"], *(cluster.get("workerGroupSpecs") or [])):
        containers = ((group.get("template") or {}).get("spec") or {}).get("containers") or []
        for container in containers[:1]:  # KubeRay takes the first for Ray's
            variables = container.get("env") or []
            if not any(variable.get("name") == _USAGE_REPORT for variable in variables):
                container["env"] = [*variables, {"name": _USAGE_REPORT, "value": "0"}]
    return changed


def _without_folders(environment: Mapping[str, Any]) -> dict[str, Any]:
    """The submission decides on folders."""
    return {name: value for name, value in environment.items() if name not in ("working_dir", "py_modules")}


def _has_token(rayjob: Mapping[str, Any]) -> bool:
    """Whether the job's cluster asks for a token; a standing one of ours always does."""
    own = rayjob["spec"].get("rayClusterSpec")
    return own is None or (own.get("authOptions") or {}).get("mode") == "token"


def _known(url: str, token_file: Path, submission_id: str) -> bool:
    try:
        Dashboard(url, token_file.read_text().strip()).job(submission_id)
    except (JobNotFound, FileNotFoundError):
        return False
    return True


def _path(kube: Kube, name: str) -> str:
    return f"{RAY}/namespaces/{kube.namespace}/rayjobs/{name}"


def _write_private(file: Path, content: bytes) -> None:
    # mkstemp makes it readable by its owner alone.
    descriptor, draft = tempfile.mkstemp(dir=file.parent)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
    Path(draft).replace(file)


def _reason(said: str) -> str:
    # The first lines are the command itself; the last one is kubectl-ray's, which knows Ray's exit
    # code only, where Ray's traceback ends with the reason.
    lines = [line.strip() for line in said.splitlines()[1:] if line.strip()]
    telling = [line for line in lines if re.match(r"(\w+\.)*\w*(Error|Exception)\b", line)]
    from_ray = [line for line in telling if "Error occurred with Ray job submit" not in line]
    return (from_ray or telling or lines or ["it gave no reason"])[-1].removeprefix("Error: ")
