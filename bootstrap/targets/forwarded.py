"""Access to our own RayCluster through port forwards on this machine."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from bootstrap.errors import NotARayJob
from bootstrap.instance import Instance
from bootstrap.kube.api import Kube
from bootstrap.steps.forwards import Forwards
from bootstrap.steps.kubectl_contexts import UserContext
from bootstrap.steps.ray_cluster import DASHBOARD_PORT, KubeRayToken, WorkspacePassword
from bootstrap.targets.target import Access
from rayside.connection.heads import head_selector, to_pod
from rayside.errors import CommandFailed, NotRunning, RaysideError, SubmissionFailed
from rayside.private_file import write_private
from rayside.ray.jobs import Submission
from rayside.ray.state import Dashboard
from rayside.reach.supervisor import forwarded
from rayside.steps.step import Report
from rayside.system.shell import Shell
from rayside.waiting import until

if TYPE_CHECKING:
    from bootstrap.kube.rayjob.kubectl_ray import KubectlRay

# Timeout in seconds to redirect the port forwards to another pod, whose dashboard has to respond.
_RETARGETED = 30.0


@dataclass(frozen=True)
class ForwardedAccess(Access):
    """Access to a RayCluster, and to KubeRay's jobs; a target's `access` and `kubernetes`."""

    instance: Instance
    kube: Kube
    forwards: Forwards
    context: UserContext
    shell: Shell
    program: Path  # kubectl-ray
    rays_programs: Path
    needs: ClassVar[tuple[str, ...]] = ("forwards", "ray-token", "ray-environment", "kuberay")

    @property
    def identity(self) -> Instance:
        return self.instance

    @property
    def cluster(self) -> str:
        return self.instance.ray_cluster

    @cached_property
    def kubectl_ray(self) -> KubectlRay:
        """Returns the program that submits RayJobs; its modules are imported only when needed."""
        from bootstrap.kube.rayjob.kubectl_ray import KubectlRay

        return KubectlRay(self.shell, self.kube, self.program, self.rays_programs)

    def urls(self) -> dict[str, str | None]:
        # A place of a workshop has no ports before somebody connects to it.
        urls = {port.name: port.url if port.local else None for port in self.forwards.ports}
        return {name: urls[name] for name in ("workspace", "dashboard", "relay")}

    def dashboard(self) -> Dashboard:
        return KubeRayToken(self.instance, self.kube).dashboard()

    def submit(self, job: Submission, submission_id: str) -> None:
        """Submits to the standing cluster, as a RayJob of that name. Raises as KubectlRay.submit."""
        from bootstrap.kube.rayjob.document import for_standing_cluster

        rayjob = for_standing_cluster(submission_id, self.instance)
        url, token = self._url, self.instance.token_file
        self.kubectl_ray.submit(rayjob, job, submission_id, url=url, token_file=token)

    def apply(self, documents: Sequence[Mapping[str, Any]]) -> list[str]:
        """Applies a user's objects, as `kubectl apply` does; returns its lines. Raises SubmissionFailed."""
        items = {"apiVersion": "v1", "kind": "List", "items": list(documents)}
        with tempfile.TemporaryDirectory(prefix="rayside-") as folder:
            file = Path(folder, "objects.json")
            file.write_text(json.dumps(items, default=str))
            try:
                command = self.kubectl("apply", "--server-side", "--filename", str(file))
                return self.shell.run(command).out.splitlines()
            except CommandFailed as error:
                why = error.message.partition("\n")[2].strip()
                raise SubmissionFailed(
                    f"kubectl can't apply what is beside the RayJob: {why}", hint="correct what it names"
                ) from None

    def submit_rayjob(
        self,
        rayjob: dict[str, Any],
        job: Submission,
        submission_id: str,
        report: Report,
        before: Callable[[], None],
    ) -> tuple[Dashboard, str]:
        """Submits a user's own RayJob; returns its cluster's dashboard and name.

        `before` creates objects that the RayJob needs; it is called after all checks.
        If the RayJob makes its own cluster, the target's port forwards lead there from then on.
        """
        from bootstrap.kube.rayjob.document import CLUSTER_LABEL, own_head_selector, with_workspace_secret
        from bootstrap.steps.package_index import rayjob_with_it

        name = rayjob["metadata"]["name"]
        submit = partial(
            self.kubectl_ray.submit, job=job, submission_id=submission_id, report=report, before=before
        )
        if selector := rayjob["spec"].get("clusterSelector"):
            if selector[CLUSTER_LABEL] != self.cluster:
                raise NotARayJob(
                    f"the RayJob {name} is for the RayCluster {selector[CLUSTER_LABEL]}, and this one is "
                    f"{self.cluster}",
                    hint=f"write clusterSelector: {{{CLUSTER_LABEL}: {self.cluster}}}",
                )
            submit(rayjob, url=self._url, token_file=self.instance.token_file)
        else:
            # A separate file: if this fails, the standing cluster's token is unchanged.
            token = self.instance.folder / "rayjob-token"
            rayjob = with_workspace_secret(rayjob, self.instance.workspace_secret)
            rayjob = rayjob_with_it(rayjob, self.kube, self.instance)
            with self.forwarded(own_head_selector(name), DASHBOARD_PORT) as port:
                submit(rayjob, url=f"http://127.0.0.1:{port}", token_file=token)
            token.replace(self.instance.token_file)
            # The cluster may be gone already, after its job's end.
            with contextlib.suppress(NotRunning):
                self._retarget(own_head_selector(name))
        created = self.kube.ray("rayjobs", name) or {}
        return self.dashboard(), created.get("status", {}).get("rayClusterName", "")

    def forwarded(self, selector: str, port: int) -> AbstractContextManager[int]:
        """Forwards a free port of this machine to a port of the pod with these labels, and yields it."""
        return forwarded(to_pod(self.kube, self.context.kubectl, selector), port)

    def lead_to(self, ray_cluster: str) -> None:
        """Redirects the target's port forwards to a RayCluster of its namespace that requires a token.

        `up` redirects them back. Raises NotRunning.
        """
        token = self.kube.secret(ray_cluster, "auth_token")
        if token is None:
            raise NotRunning(
                f"there is no token of a RayCluster {ray_cluster}", hint="wait until it is ready"
            )
        write_private(self.instance.token_file, token)
        self._retarget(head_selector(ray_cluster))

    def _retarget(self, selector: str) -> None:
        replace(self.forwards, selector=selector).retarget()

        def refusal() -> RaysideError | None:
            try:
                self.require()
            except NotRunning as error:  # The earlier head still responds, and refuses this token.
                return error
            return None

        if error := until(refusal, lambda seen: seen is None, _RETARGETED):
            raise error

    def log(self) -> str:
        return self.kube.log(head_selector(self.cluster), "ray-head")

    def workspace_password(self) -> str | None:
        return WorkspacePassword(self.instance, self.kube).password()

    def open_folder(self) -> str:
        from bootstrap.steps.workspace import head_folder

        return head_folder(self.require().jobs())

    def use_context(self) -> None:
        self.context.use()

    def kubectl(self, *arguments: str) -> list[str]:
        """Returns kubectl's command with these arguments, in the cluster's namespace."""
        program = str(self.context.kubectl)
        return [program, *self.kube.options, "--namespace", self.kube.namespace, *arguments]

    @property
    def _url(self) -> str:
        return str(self.urls()["dashboard"])
