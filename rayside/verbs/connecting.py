"""Verbs `connect`, `status` and `disconnect`, and the access to a recorded cluster for all other verbs."""

from __future__ import annotations

import json
import sys
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from rayside.connection import heads, instance
from rayside.connection.access import RecordedAccess
from rayside.connection.chosen_instance import chosen_ports, require_as_made
from rayside.connection.connections import BySsh, Connection, connection_to
from rayside.connection.instance import USUAL_DASHBOARD, Instance, Ports
from rayside.connection.kubectl_namespace import KubectlNamespace
from rayside.console import Console
from rayside.dap.one_request import no_answer
from rayside.default_folders import DEFAULT_NAME
from rayside.errors import InvalidArgument, InvalidSetting, NotRunning
from rayside.own_folder import require_own
from rayside.settings import THEIRS, Settings, as_environment
from rayside.steps import graph
from rayside.steps.cluster_file import ClusterFile
from rayside.steps.step import Status, Step, missing, ready
from rayside.system.lock import alone
from rayside.system.shell import Shell
from rayside.users import own_name
from rayside.verbs import cluster_status
from rayside.verbs.job_output import show_jobs

# An editor may run it in a repository's folder: unlike -m, it imports no module from the current folder.
_CLI = "import sys; sys.path = [*filter(None, sys.path)]; from rayside.cli import main; sys.exit(main())"
_HOW = "rayside connect --address http://HOST:8265, or --ssh HOST, or --context CONTEXT"


def access(settings: Settings, console: Console) -> RecordedAccess:
    """Returns the access to the recorded cluster of that name. Raises NotRunning without one."""
    return RecordedAccess(_existing(settings, console))


def connect(settings: Settings, console: Console) -> None:
    """Connects to an existing Ray cluster; repairs only what is not ready."""
    shell = Shell()
    with _alone(settings, console):
        identity = _identity(settings, shell)
        connection = _connection(settings, shell, identity)
        console.event(connection.notice)
        with console.progress():
            timings = graph.up(_steps(settings, connection), console, interrupt=shell.interrupt)
    if any(timing.changed for timing in timings):
        cluster_status.record(identity, timings)
    if console.as_json:
        statuses = {timing.name: ready(timing.detail) for timing in timings}
        cluster_status.show(console, identity, statuses, _urls(identity), target="cluster", source="")
        return
    seen = connection.head.known
    console.result(f"Connected to {identity.place}: Ray {seen['version']}, Python {seen['python']}.")
    console.result(f"Dashboard   {identity.dashboard}")
    console.result(f"Relay       {_urls(identity)['relay']}")
    console.result(f"            editors attach here, with the token in {identity.token_file}")
    console.result("\nNext: rayside submit --debug --entrypoint 'python your_program.py', then rayside debug")


def status(settings: Settings, console: Console, *, everyone: bool = False) -> None:
    """Shows the connection step by step, and the jobs."""
    identity = _existing(settings, console)
    statuses = graph.check(_steps_of(settings, identity))
    where = {"target": identity.target, "source": identity.source}
    if not cluster_status.show(console, identity, statuses, _urls(identity), **where):
        return
    show_jobs(console, RecordedAccess(identity).require().jobs(), identity.user, everyone=everyone)
    console.result("\nNext: rayside debug stops in what is paused; rayside submit starts a job")


def disconnect(settings: Settings, console: Console) -> None:
    """Removes what `connect` made here and on the cluster's head; the cluster and its jobs stay."""
    with _alone(settings, console):
        location, is_readable = settings.state_folder / settings.name, True
        try:
            identity = instance.read(location, Instance)
        except InvalidSetting:
            identity = Instance(settings.name, "cluster", "", "", location, _asked(settings))
            is_readable = False
        if identity is None:
            console.result(f"There is no connection {settings.name}.")
            return
        _require_connected(identity, "disconnect", "`down`, in that clone, removes it")
        connection = _connection(settings, Shell(), identity)
        steps = _steps(settings, connection) if is_readable else _of_this_machine(settings, identity)
        with console.progress():
            graph.down(steps, console)
    if not is_readable:
        console.result(
            f"Removed what was here of the connection {settings.name}, whose record could not be read. "
            "If it had a relay on the cluster's head, that one goes on there."
        )
        return
    console.result(f"Disconnected from {identity.place}. Its jobs go on, and tasks that were stopped resume.")


# --- the cluster -------------------------------------------------------------------------


def _existing(settings: Settings, console: Console) -> Instance:
    require_own(settings.state_folder)
    identity = instance.read(settings.state_folder / settings.name, Instance)
    if identity is None:
        recorded = instance.all_recorded(settings.state_folder, Instance)
        others = ", ".join(each.name for each in recorded)
        known = f"; --name names one of {others}" if others else ""
        named = "" if settings.name == DEFAULT_NAME else f"{settings.name} "
        raise NotRunning(f"no Ray cluster {named}is connected", hint=f"{_HOW}{known}")
    console.made_elsewhere = _is_of_clone(identity)
    _require_meant(settings, identity, "--name names another; rayside connect --name NAME connects one more")
    return identity


def _identity(settings: Settings, shell: Shell) -> Instance:
    """Returns the connected cluster of this name, or a new one from the settings."""
    require_own(settings.state_folder)
    recorded = instance.read(settings.state_folder / settings.name, Instance)
    if recorded is not None:
        _require_connected(
            recorded,
            "connect",
            "rayside debug works on it as it is; or give this connection a --name of its own",
        )
        hint = f"rayside disconnect{recorded.verb_options} ends it; or --name gives a second one"
        _require_meant(settings, recorded, hint)
        # The setting may name the RayJob or RayService that owns the RayCluster.
        if not settings.ray_cluster or not recorded.their_cluster:
            found = recorded.their_cluster
        else:
            found = heads.find(_kube(shell, recorded), settings.ray_cluster)
        if found != recorded.their_cluster or not found:
            require_as_made(settings, recorded, {"ray_cluster": recorded.their_cluster}, hint=hint)
        return replace(recorded, ports=_ports(settings, recorded))
    if not any(getattr(settings, key) for key in THEIRS):
        raise InvalidSetting("no Ray cluster was named", hint=_HOW)
    identity = Instance(
        name=settings.name,
        target="cluster",
        namespace="default",
        context=settings.context,
        location=settings.state_folder / settings.name,
        ports=_asked(settings),
        address=settings.address or USUAL_DASHBOARD,
        ssh=settings.ssh,
        user=settings.user or own_name(),
    )
    if settings.context:
        kube = KubectlNamespace.of(shell, settings.context, settings.namespace)
        identity = replace(
            identity,
            namespace=kube.namespace,
            their_kubeconfig=str(kube.kubeconfig),
            their_cluster=heads.find(kube, settings.ray_cluster),
        )
    return replace(identity, ports=_ports(settings, identity))


def _require_meant(settings: Settings, recorded: Instance, hint: str) -> None:
    """Raises InvalidSetting if the settings, for example of a project, choose another cluster."""
    made_with = {key: getattr(recorded, key) for key in (*THEIRS, "namespace", "user")}
    require_as_made(settings, recorded, made_with, hint=hint)


def _is_of_clone(identity: Instance) -> bool:
    """Returns whether a clone's bootstrapper made the cluster, or the connection to it."""
    if identity.target != "cluster" or identity.created or identity.workspace_pod:
        return True
    try:
        return bool(json.loads(identity.cluster_file.read_text())["verbs"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _require_connected(identity: Instance, verb: str, hint: str) -> None:
    """Raises InvalidArgument for a cluster that a clone's bootstrapper made."""
    if _is_of_clone(identity):
        raise InvalidArgument(
            f"{verb} is for an existing Ray cluster, and {identity.name} was made in a clone of Rayside",
            hint=hint,
        )


def _connection(settings: Settings, shell: Shell, identity: Instance) -> Connection:
    return connection_to(identity, shell, settings, lambda: _kube(shell, identity))


def _kube(shell: Shell, identity: Instance) -> KubectlNamespace:
    kubeconfig = Path(identity.their_kubeconfig)
    return KubectlNamespace(shell, kubeconfig, identity.context, identity.namespace)


def _of_this_machine(settings: Settings, identity: Instance) -> list[Step]:
    """Returns the steps whose files and processes can be found from the folder alone, without a record."""
    way = BySsh(Shell(), settings, identity)
    forwards = [
        replace(each, transport="any transport", needs=("state-folder",))
        for each in (way.dashboard, way.relay)
    ]
    return [way.state_folder, *forwards]


def _steps(settings: Settings, connection: Connection) -> list[Step]:
    return [*connection.steps(), _cluster_file(settings, connection.instance)]


def _steps_of(settings: Settings, identity: Instance) -> list[Step]:
    """Returns the steps of a connection; for a cluster of a clone, only the steps that verbs need."""
    if _is_of_clone(identity):
        return [Answers("ray", identity), Answers("relay", identity)]
    return _steps(settings, _connection(settings, Shell(), identity))


def _cluster_file(settings: Settings, identity: Instance) -> ClusterFile:
    own = Settings(name=identity.name, state_folder=settings.state_folder, cache_folder=settings.cache_folder)
    return ClusterFile(identity, False, (), (sys.executable, "-c", _CLI, "submit"), as_environment(own))


def _urls(identity: Instance) -> dict[str, str | None]:
    relay = f"tcp://127.0.0.1:{identity.ports.relay}"
    return {"workspace": None, "dashboard": identity.dashboard, "relay": relay}


@dataclass(frozen=True)
class Answers:
    """Check-only step: Ray, or the relay, of a clone's cluster answers."""

    name: str
    instance: Instance
    needs: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        return {"ray": "Ray", "relay": "debug relay"}[self.name]

    def check(self) -> Status:
        if self.name == "ray":
            version = RecordedAccess(self.instance).require().version()["ray_version"]
            return ready(f"Ray {version} at {self.instance.dashboard}")
        port = self.instance.ports.relay
        if why := no_answer(port):
            return missing(f"port {port} {why}")
        return ready(f"tcp://127.0.0.1:{port}")


# --- ports and lock ----------------------------------------------------------------------


def _asked(settings: Settings) -> Ports:
    # Only a clone's cluster has Ray Client and the workspace.
    return Ports(settings.dashboard_port, 0, settings.relay_port, 0)


def _ports(settings: Settings, identity: Instance) -> Ports:
    return chosen_ports(identity, settings.state_folder, _asked(settings), _asked(Settings()))


def _alone(settings: Settings, console: Console) -> AbstractContextManager[None]:
    location = settings.state_folder / settings.name
    lock = instance.lock(location, settings.cache_folder)
    return alone(lock, lambda: console.event("Another command is at work on this cluster: waiting for it"))
