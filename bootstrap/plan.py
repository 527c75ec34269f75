"""Composes everything: the steps of each target, in order."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from bootstrap.codespaces import larger_machine
from bootstrap.errors import EngineNotPermitted, EngineNotRunning, NotRunning
from bootstrap.kube.api import Kube, head_selector
from bootstrap.kube.forwarder import Forward, forwarded
from bootstrap.kube.rayjob.document import for_standing_cluster, own_head_selector
from bootstrap.kube.rayjob.submission import KubectlRay
from bootstrap.own_folder import require_own
from bootstrap.ray import jobs
from bootstrap.ray.state import Dashboard
from bootstrap.settings import Settings
from bootstrap.shell import Shell
from bootstrap.sources import engine, upstream
from bootstrap.sources.extensions import Extensions, image_extensions, this_platform
from bootstrap.sources.packages import Packages
from bootstrap.sources.source import Source
from bootstrap.sources.upstream import Upstream
from bootstrap.step import Report, Step, Timing, dependants
from bootstrap.steps import kind_cluster, ray_cluster, workspace
from bootstrap.steps.cluster_file import ClusterFile
from bootstrap.steps.engine import Engine
from bootstrap.steps.example_job import ExampleJob
from bootstrap.steps.forwards import Forwards
from bootstrap.steps.kind_cluster import KindCluster
from bootstrap.steps.kubeconfig import Kubeconfig, UserContext
from bootstrap.steps.kuberay import CustomResources, KubeRay, OperatorManifest
from bootstrap.steps.local_ray import RayHead
from bootstrap.steps.machine import Machine
from bootstrap.steps.node_images import NodeImages
from bootstrap.steps.ray_cluster import KubeRayToken, RayCluster, WorkspacePassword
from bootstrap.steps.ray_environment import RayEnvironment
from bootstrap.steps.relay import LocalRelay
from bootstrap.steps.secret_file import SecretFile
from bootstrap.steps.state_folder import StateFolder, write_private
from bootstrap.steps.workspace import LocalWorkspace, WorkspaceFiles

# It is the engine's own default; if the engine is another machine's, the nearest folder of ours counts.
_ENGINES_FOLDER = Path("/var/lib/docker")
# It has the timing of the last `up`, in the target's folder.
_TIMINGS = "up.json"


@dataclass(frozen=True)
class Local:
    """Ray as processes of this machine."""

    settings: Settings
    shell: Shell
    reason: str
    target: str = "local"
    # `submit --json` calls the cluster so.
    ray_cluster: str = "local"
    # Ray comes from PyPI, as the lock file says.
    source: str = "packages"

    def first(self, *, since: float = 0.0) -> list[Step]:
        """Returns the steps that have to be ready before the rest can be named: none, here."""
        return []

    def cluster(self) -> list[Step]:
        """Returns the steps that make the cluster."""
        return [
            self._machine,
            self.environment,
            self._state_folder,
            self._token,
            self.head,
            self.relay,
            self.cluster_file,
            *self._workspace_steps,
        ]

    def with_example(self) -> list[Step]:
        """Returns the steps that make the cluster, with the example paused on it."""
        return [
            *self.cluster(),
            ExampleJob(self.head.dashboard, self.submit, needs=("ray",)),
        ]

    def cacheable(self) -> list[Step]:
        """Returns the steps that can be made ready ahead without starting anything."""
        extensions = replace(self._extensions, since=time.time())
        files: list[Step] = [extensions, self.workspace_files] if self.settings.workspace else []
        return [replace(self._machine, ports=()), self.environment, *files]

    @property
    def folder(self) -> Path:
        """Returns the cluster's folder, the only way to its files, checked each time. Raises UnsafeFolder."""
        return require_own(self.settings.state_folder)

    @property
    def ray_folder(self) -> Path:
        """Returns Ray's folder, checked too: others may make folders beside it. Raises UnsafeFolder."""
        return require_own(self.settings.ray_folder)

    def __post_init__(self) -> None:
        """Refuses a target whose folders may be another user's. Raises UnsafeFolder."""
        _ = self.folder, self.ray_folder

    @property
    def log(self) -> str:
        """Returns the output of Ray's head. Raises NotRunning."""
        if not self.head.log.exists():
            raise NotRunning("there is no log: Ray was not started", hint="./invokew up starts it")
        return self.head.log.read_text(errors="replace")

    @property
    def lock(self) -> Path:
        """Returns the lock for changing the cluster, in the cache, as the state folder comes and goes."""
        name = hashlib.sha256(str(self.settings.state_folder).encode()).hexdigest()[:12]
        return self.settings.cache_folder / f"local-{name}.lock"

    def urls(self) -> dict[str, str | None]:
        url = self.workspace.url if self.settings.workspace else None
        return {"workspace": url, "dashboard": self.head.url, "relay": self.relay.url}

    def workspace_password(self) -> str | None:
        """Returns the workspace's password; None where there is none."""
        return self._password.text()

    def open_folder(self) -> str:
        """Returns the newest job's working_dir, which the workspace opens. Raises NotRunning, RayDied."""
        return workspace.local_folder(self.require().jobs())

    def require(self) -> Dashboard:
        """Returns the dashboard of the cluster. Raises NotRunning, RayDied."""
        return self.head.require()

    def present(self) -> bool:
        """Returns whether anything of this Ray runs: then it holds its ports, and its memory."""
        return self.head.present() or self.relay.present() or self.workspace.present()

    @property
    def needed(self) -> Settings:
        """Returns the settings, with the memory and disk that have to be free for this target."""
        return self.settings

    @property
    def too_small(self) -> str:
        """Returns the advice for a codespace that is too small; empty anywhere else."""
        return larger_machine()

    def submit(self, job: jobs.Submission, submission_id: str) -> None:
        ray, env = self.environment.programs / "ray", self.head.environment()
        jobs.submit(self.shell, ray, self.head.url, env, job, submission_id)

    def remember(self, timings: Sequence[Timing]) -> None:
        """Keeps the timing of the last `up` that changed something, for `status`."""
        _remember(self.folder, timings)

    def timings(self) -> list[dict[str, Any]]:
        """Returns what `remember` kept; nothing where there was no `up`."""
        return _timings(self.folder)

    # --- the steps -----------------------------------------------------------------------

    @property
    def environment(self) -> RayEnvironment:
        return RayEnvironment(self.shell, self.settings.cache_folder)

    @property
    def head(self) -> RayHead:
        folders = self.folder, self.ray_folder
        return RayHead(self.shell, self.settings, self.environment.programs, *folders)

    @property
    def relay(self) -> LocalRelay:
        return LocalRelay(self.shell, self.settings, self.head)

    @property
    def workspace_files(self) -> WorkspaceFiles:
        return WorkspaceFiles(self.shell, self.settings.cache_folder, self._extensions)

    @property
    def cluster_file(self) -> ClusterFile:
        return ClusterFile(self.settings, self.target, self.folder, shared_files=True)

    @property
    def workspace(self) -> LocalWorkspace:
        return LocalWorkspace(
            *(self.shell, self.settings, self.head, self.workspace_files),
            *(self._password, self.cluster_file),
        )

    @property
    def _workspace_steps(self) -> list[Step]:
        if not self.settings.workspace:
            return []
        return [self._extensions, self.workspace_files, self._password, self.workspace]

    @property
    def _extensions(self) -> Extensions:
        return Extensions(self.settings, this_platform(), in_use=self.present)

    @property
    def _password(self) -> SecretFile:
        file = self.folder / "workspace-password"
        return SecretFile(file, 18, "workspace-password", "password of the workspace")

    @property
    def ports(self) -> tuple[str, ...]:
        """Returns the settings of the ports that have to be free for the cluster."""
        workspace = ("workspace_port",) if self.settings.workspace else ()
        return ("dashboard_port", "ray_client_port", "relay_port", *workspace)

    @property
    def _machine(self) -> Machine:
        return Machine(self.settings, self.present, ports=self.ports, too_small=self.too_small)

    @property
    def _state_folder(self) -> StateFolder:
        more = (self.ray_folder,) if self.ray_folder != self.folder else ()
        return StateFolder(self.folder, more)

    @property
    def _token(self) -> SecretFile:
        return SecretFile(self.folder / "token", 32, "ray-token", "Ray's authentication token")


@dataclass(frozen=True)
class Kind:
    """A kind cluster with KubeRay, a standing RayCluster and the browser workspace."""

    settings: Settings
    shell: Shell
    reason: str
    target: str = "kind"
    # `submit --json` calls the cluster so: the RayCluster that jobs go to, unless they make their own.
    ray_cluster: str = ray_cluster.NAME
    # The existing cluster was made from this source; None where there is no cluster.
    made_from: str | None = None

    def first(self, *, since: float = 0.0) -> list[Step]:
        """Returns the steps to make ready before the rest can be named: the workspace image's tag needs them.

        `since` is that of `Extensions`.
        """
        extensions = image_extensions(self.settings)
        return [replace(extensions, since=since, in_use=lambda: self.made_from is not None)]

    def cluster(self) -> list[Step]:
        """Returns the steps that make the cluster."""
        return [
            Engine(self.shell, installs=False),
            self._machine,
            StateFolder(self.folder),
            *self.first(),
            *self.origin.steps,
            self.environment,
            self._operator_manifest,
            self.kind_cluster,
            Kubeconfig(self.shell, self.kind_cluster, self.kube),
            self.user_context,
            self._node_images,
            CustomResources(self.shell, self.kube, self.origin.kubectl, self._operator_manifest),
            KubeRay(self.kube),
            self.password,
            self._ray_cluster,
            self._token,
            self.cluster_file,
            self.forwards,
        ]

    def with_example(self) -> list[Step]:
        """Returns the steps that make the cluster, with the example paused on it."""
        return [
            *self.cluster(),
            ExampleJob(
                self.dashboard, self.submit, needs=("forwards", "ray-token", "ray-environment", "kuberay")
            ),
        ]

    def cacheable(self) -> list[Step]:
        """Returns the steps that can be made ready ahead, after `first`, without starting anything."""
        machine = replace(self._machine, ports=())
        engine_step = Engine(self.shell, installs=False)
        return [
            engine_step,
            machine,
            *self.first(),
            *self.origin.steps,
            self.environment,
            self._operator_manifest,
        ]

    def cacheable_without_engine(self) -> tuple[list[Step], list[Step]]:
        """Returns the steps of `cacheable` that need no Docker engine, and the others; needs less memory."""
        room = replace(self.settings, min_disk_gib=self.settings.kind_min_disk_gib)
        machine = Machine(room, self.present, ports=(), too_small=self.too_small)
        steps = [machine if step.name == "machine" else step for step in self.cacheable()]
        left_out = dependants(steps, "engine")
        return [step for step in steps if step.name not in left_out], [
            step for step in steps if step.name in left_out
        ]

    @property
    def source(self) -> str:
        return self.origin.name

    @property
    def folder(self) -> Path:
        """Returns the folder of the cluster's files, not that of `local`, which may be up at the same time.

        It is the one way to them, which is checked each time. Raises UnsafeFolder.
        """
        local = self.settings.state_folder
        return require_own(local.with_name(f"{local.name}-kind"))

    def __post_init__(self) -> None:
        """Refuses a target whose folder may be another user's. Raises UnsafeFolder."""
        _ = self.folder

    @property
    def lock(self) -> Path:
        """Returns the lock that changing the cluster takes."""
        return self.settings.cache_folder / f"kind-{self.settings.kind_cluster}.lock"

    @property
    def log(self) -> str:
        """Returns the output of Ray's head."""
        return self.kube.log(head_selector(ray_cluster.NAME), "ray-head")

    def urls(self) -> dict[str, str | None]:
        """Returns the addresses of the forwards."""
        here = "http://127.0.0.1"
        return {
            "workspace": f"{here}:{self.settings.workspace_port}",
            "dashboard": f"{here}:{self.settings.dashboard_port}",
            "relay": f"tcp://127.0.0.1:{self.settings.relay_port}",
        }

    def workspace_password(self) -> str | None:
        """Returns the workspace's password; None where there is none."""
        return self.password.password()

    def open_folder(self) -> str:
        """Returns the newest job's working_dir in the head, which the workspace opens. Raises NotRunning."""
        return workspace.head_folder(self.require().jobs())

    def dashboard(self) -> Dashboard:
        """Returns a client of it. Raises NotRunning where there is no token, so no cluster of ours."""
        return self._token.dashboard(self.settings.dashboard_port)

    def require(self) -> Dashboard:
        """Returns the dashboard of the cluster, which answers. Raises NotRunning."""
        dashboard = self.dashboard()
        dashboard.version()
        return dashboard

    def submit(self, job: jobs.Submission, submission_id: str) -> None:
        """Submits to the standing cluster, by a RayJob of that name. Raises as KubectlRay.submit."""
        rayjob = for_standing_cluster(submission_id, ray_cluster.NAME)
        url = str(self.urls()["dashboard"])
        self.kubectl_ray.submit(rayjob, job, submission_id, url=url, token_file=self._token.file)

    def submit_rayjob(
        self, rayjob: dict[str, Any], job: jobs.Submission, submission_id: str, report: Report
    ) -> tuple[Dashboard, str]:
        """Submits a user's own RayJob; returns the dashboard, and the name, of the cluster that it runs on.

        If it makes its own cluster, the forwards lead there from then on.
        """
        name = rayjob["metadata"]["name"]
        if "clusterSelector" in rayjob["spec"]:
            url, token = str(self.urls()["dashboard"]), self._token.file
            self.kubectl_ray.submit(rayjob, job, submission_id, url=url, token_file=token, report=report)
        else:
            # It has a file of its own: if this fails, the token of the standing cluster is still there.
            token = self.folder / "rayjob-token"
            with forwarded(self.kube, own_head_selector(name), ray_cluster.DASHBOARD_PORT) as port:
                url = f"http://127.0.0.1:{port}"
                self.kubectl_ray.submit(rayjob, job, submission_id, url=url, token_file=token, report=report)
            token.replace(self._token.file)
            replace(self.forwards, selector=own_head_selector(name)).retarget()
        created = self.kube.ray("rayjobs", name) or {}
        return self.require(), created.get("status", {}).get("rayClusterName", "")

    def remember(self, timings: Sequence[Timing]) -> None:
        """Keeps the timing of the last `up` that changed something, for `status`."""
        _remember(self.folder, timings)

    def timings(self) -> list[dict[str, Any]]:
        """Returns what `remember` kept; nothing where there was no `up`."""
        return _timings(self.folder)

    # --- the steps -----------------------------------------------------------------------

    @cached_property
    def origin(self) -> Source:
        """Returns the source of the images and tools."""
        chosen = self.settings.source
        if chosen == "auto":
            chosen = self.made_from or ("packages" if upstream.answers(self.settings) else "upstream")
        if chosen == "upstream":
            return Upstream(self.settings, self.shell)
        return Packages(self.settings, self.shell, cluster_exists=self.present)

    @property
    def kube(self) -> Kube:
        context = f"kind-{self.settings.kind_cluster}"
        return Kube(self.folder / "kubeconfig", context, self.settings.namespace)

    @property
    def kind_cluster(self) -> KindCluster:
        return KindCluster(
            self.shell, self.settings, self.folder, self.origin.kind, self.origin.images.node, self.source
        )

    @property
    def user_context(self) -> UserContext:
        return UserContext(self.shell, self.origin.kubectl, self.kube)

    @property
    def cluster_file(self) -> ClusterFile:
        """Returns the cluster file for this machine's editors, which don't see the workers' files."""
        return ClusterFile(self.settings, self.target, self.folder, shared_files=False)

    @property
    def password(self) -> WorkspacePassword:
        return WorkspacePassword(self.shell, self.kube, self.origin.kubectl, self.folder)

    @property
    def environment(self) -> RayEnvironment:
        """Returns this machine's Ray environment: kubectl-ray runs its `ray`."""
        return RayEnvironment(self.shell, self.settings.cache_folder)

    @property
    def forwards(self) -> Forwards:
        ports = (
            Forward("dashboard", self.settings.dashboard_port, ray_cluster.DASHBOARD_PORT),
            Forward("workspace", self.settings.workspace_port, ray_cluster.WORKSPACE_PORT),
            Forward("relay", self.settings.relay_port, ray_cluster.RELAY_PORT, speaks="dap"),
        )
        return Forwards(self.shell, self.kube, self.folder, ports, head_selector(ray_cluster.NAME))

    def present(self) -> bool:
        """Returns whether the cluster exists, in whatever state; then it holds its ports, and its memory."""
        return kind_cluster.exists(self.settings.kind_cluster)

    @property
    def ports(self) -> tuple[str, ...]:
        """Returns the settings of the ports that have to be free for the cluster."""
        return ("dashboard_port", "workspace_port", "relay_port")

    @property
    def _machine(self) -> Machine:
        # It comes after the engine, which knows whether the cluster itself has taken the ports.
        folders, needs = (_ENGINES_FOLDER,), ("engine",)
        return Machine(
            self.needed,
            self.present,
            ports=self.ports,
            folders=folders,
            needs=needs,
            too_small=self.too_small,
        )

    @property
    def too_small(self) -> str:
        """Returns the advice for a codespace that is too small; empty anywhere else."""
        memory, disk = self.settings.min_memory_gib, self.settings.min_disk_gib
        local = f"./invokew up --target local, which needs {memory:g} GiB of memory and {disk:g} GiB of disk"
        return f"{larger}, or {local}" if (larger := larger_machine()) else ""

    @property
    def needed(self) -> Settings:
        """Returns the settings, with the memory and disk that have to be free for this target."""
        memory, disk = self.settings.kind_min_memory_gib, self.settings.kind_min_disk_gib
        return replace(self.settings, min_memory_gib=memory, min_disk_gib=disk)

    @property
    def _operator_manifest(self) -> OperatorManifest:
        images = self.origin.images
        return OperatorManifest(
            self.shell, self.settings.cache_folder, self.origin.kubectl, self.origin.kuberay, images.operator
        )

    @property
    def _node_images(self) -> NodeImages:
        images = self.origin.images
        references = (images.ray, images.workspace, images.operator)
        return NodeImages(self.shell, self.kind_cluster.node, references, images.aliases())

    @property
    def _ray_cluster(self) -> RayCluster:
        return RayCluster(
            self.shell, self.settings, self.kube, self.origin.kubectl, self.origin.images, self.folder
        )

    @property
    def _token(self) -> KubeRayToken:
        return KubeRayToken(self.kube, self.folder)

    @property
    def kubectl_ray(self) -> KubectlRay:
        return KubectlRay(self.shell, self.kube, self.origin.kubectl_ray, self.environment.programs)


Target = Local | Kind


def choose(settings: Settings, shell: Shell) -> Target:
    """Returns the target that the settings ask for, with the reason for the choice, for people.

    `auto` is the target that is up, else kind where a Docker engine answers, else local. A kind cluster that
    was made and not removed stays the target when its engine does not answer.
    """
    if settings.target == "local":
        return Local(settings, shell, "as asked")
    local = Local(settings, shell, "auto: it is up")
    if settings.target == "auto" and local.head.present():
        return local
    try:
        made_from = kind_cluster.source_in_use(settings.kind_cluster)
        exists = made_from is not None
    except (EngineNotRunning, EngineNotPermitted) as error:
        if settings.target == "auto":
            kind = Kind(settings, shell, "auto: it was made, and its Docker engine does not answer")
            return kind if kind.folder.exists() else Local(settings, shell, f"auto: {error.message}")
        made_from, exists = None, False
    if settings.target == "kind":
        return Kind(settings, shell, "as asked", made_from=made_from)
    reason = "auto: it is up" if exists else "auto: a Docker engine answers"
    return Kind(settings, shell, reason, made_from=made_from)


def wait_for_engine(settings: Settings, shell: Shell, report: Report) -> None:
    """Waits, as long as the settings say, for the Docker engine where the choice of the target needs one."""
    if not settings.engine_wait or settings.target == "local":
        return
    if settings.target == "auto" and Local(settings, shell, "auto").head.present():
        return
    engine.wait(settings.engine_wait, report)


def preparation(settings: Settings, shell: Shell) -> tuple[Target, Callable[[], list[Step]], list[Step]]:
    """Returns the steps that can be made ready ahead, and those that can't for want of a Docker engine.

    Without an engine they are kind's nevertheless, for an engine may come later, and those that `local`
    needs, unless kind was asked for.

    Returns:
        The target; its steps, after its `first`; the steps that are left out.
    """
    chosen = choose(settings, shell)
    if settings.target == "local" or chosen.present() or engine.answers():
        return chosen, chosen.cacheable, []
    later, local = Kind(settings, shell, "for later"), Local(settings, shell, "for now")

    def steps() -> list[Step]:
        kind_steps = later.cacheable_without_engine()[0]
        names = {step.name for step in kind_steps}
        others = local.cacheable() if settings.target == "auto" else []
        return [*kind_steps, *(step for step in others if step.name not in names)]

    return later, steps, later.cacheable_without_engine()[1]


def all_present(settings: Settings, shell: Shell) -> list[Target]:
    """Returns every target that the settings mean and that may have something to remove."""
    if settings.target != "auto":
        return [choose(settings, shell)]
    targets: list[Target] = [Local(settings, shell, "auto")]
    kind = Kind(settings, shell, "auto")
    try:
        made_from = kind_cluster.source_in_use(settings.kind_cluster)
        if made_from or kind.folder.exists():
            targets.append(replace(kind, made_from=made_from or "packages"))
    except (EngineNotRunning, EngineNotPermitted):  # What is in it can't be removed now.
        pass
    return targets


def _remember(folder: Path, timings: Sequence[Timing]) -> None:
    document = [timing.document() for timing in timings]
    write_private(folder / _TIMINGS, json.dumps(document))


def _timings(folder: Path) -> list[dict[str, Any]]:
    try:
        return list(json.loads((folder / _TIMINGS).read_text()))
    except (FileNotFoundError, ValueError):
        return []
