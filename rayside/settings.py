"""Settings of the debugger: folders, the connected cluster, masking of secrets.

Sources, later ones win: the defaults here, the table `[tool.rayside]` in the `pyproject.toml` of the working
directory, the environment (`INVOKE_RAYSIDE_<NAME>`), and command-line options. The bootstrapper has these
settings and more.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path

from rayside.default_folders import DEFAULT_NAME, cache_folder, state_folder

ENVIRONMENT_PREFIX = "INVOKE_RAYSIDE_"

# Settings that name an existing Ray cluster.
THEIRS = ("address", "ssh", "context")

# Value of `token_file` that sends no token of this user, except one sent to that Ray cluster before.
NO_TOKEN = "none"

# The names of Kubernetes' objects are RFC 1123 labels of at most 63 characters. KubeRay allows a RayCluster's
# name 53 (MaxRayClusterNameLength in ray-operator/controllers/ray/utils/constant.go), and we add to it.
LONGEST_NAME = 40


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of one command; each field's name is the key that users write."""

    # Name of the cluster, as several may be known at the same time.
    name: str = DEFAULT_NAME
    # The dashboard of an existing Ray cluster, as in http://head:8265; and the file with its token, if that
    # is in none of Ray's own places.
    address: str = ""
    token_file: str = ""
    # SSH host with that dashboard on its loopback address; `address` is then the URL as seen from the host.
    ssh: str = ""
    # A context of the user's kubeconfig, the namespace there (default: the context's, else `default`), and
    # the RayCluster, if the namespace has several.
    context: str = ""
    namespace: str = ""
    ray_cluster: str = ""
    # User name of this user's jobs there (default: the user name on this machine).
    user: str = ""
    # Ray's own default, so that Ray's documentation applies unchanged.
    dashboard_port: int = 8265
    # Port of the debug relay: debugpy's own default, as in editors' examples.
    relay_port: int = 5678
    # Patterns of names whose values are masked, besides names that look secret: as `*iban*`, separated by
    # commas; `!` before a pattern excludes its matches; `none` masks nothing.
    masked_names: str = ""
    # Regular expression of values to mask.
    masked_values: str = ""
    # Whether a secret's value is masked everywhere, which costs a request at stops and expressions.
    mask_by_value: bool = False
    cache_folder: Path = field(default_factory=cache_folder)
    state_folder: Path = field(default_factory=state_folder)


def environment_name(key: str) -> str:
    """Returns the environment variable that sets `key`."""
    return ENVIRONMENT_PREFIX + key.upper()


# Settings that may contain a login: they are not passed to jobs, or to programs that verbs start.
WITH_LOGIN = ("package_index", "package_proxy")
UNTOLD = tuple(environment_name(key) for key in WITH_LOGIN)


def as_environment(settings: Settings) -> dict[str, str]:
    """Returns the variables that pass these settings to another process, without defaults and logins."""
    default = type(settings)()
    return {
        name: str(value)
        for spec in fields(settings)
        if (value := getattr(settings, spec.name)) != getattr(default, spec.name)
        and (name := environment_name(spec.name)) not in UNTOLD
    }
