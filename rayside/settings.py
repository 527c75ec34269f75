"""Settings of the debugger: its folders, the cluster that it is connected to, what it masks.

A value comes, later ones winning, from the defaults here, the table `[tool.rayside]` of the `pyproject.toml`
of the folder that one works in, the environment (`INVOKE_RAYSIDE_<NAME>`), and a command's own options. The
bootstrapper's settings are these and more.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path

from rayside.default_folders import DEFAULT_NAME, cache_folder, state_folder

ENVIRONMENT_PREFIX = "INVOKE_RAYSIDE_"

# By these an existing Ray cluster is named.
THEIRS = ("address", "ssh", "context")

# As `token_file`: none of this user's tokens is sent, but one that was sent to that Ray before.
NO_TOKEN = "none"

# The names of Kubernetes' objects are RFC 1123 labels of at most 63 characters. KubeRay allows a RayCluster's
# name 53 (MaxRayClusterNameLength in ray-operator/controllers/ray/utils/constant.go), and we add to it.
LONGEST_NAME = 40


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of one command; each field's name is the key that users write."""

    # The cluster that is meant, of those that are known at the same time.
    name: str = DEFAULT_NAME
    # The dashboard of an existing Ray cluster, as in http://head:8265; and the file of its token, where it is
    # in none of Ray's own places.
    address: str = ""
    token_file: str = ""
    # A host that OpenSSH reaches, whose loopback has that dashboard: `address` is as the host sees it then.
    ssh: str = ""
    # A context of the user's kubeconfig, the namespace there (default: the context's, else `default`), and
    # the RayCluster, where the namespace has several.
    context: str = ""
    namespace: str = ""
    ray_cluster: str = ""
    # The name under which this user's jobs are known there (default: that of this machine's user).
    user: str = ""
    # It is Ray's own default, so that Ray's documentation applies as it stands.
    dashboard_port: int = 8265
    # The debug relay has debugpy's own default, which editors' examples have.
    relay_port: int = 5678
    # The debugger shows no values of names that look secret, nor of those that are named here: patterns as
    # `*iban*`, with commas between; `!` before a pattern excepts what it matches; `none` masks nothing.
    masked_names: str = ""
    # Nor what this regular expression matches.
    masked_values: str = ""
    # Whether a secret's value is masked wherever it stands, which costs a request at stops and expressions.
    mask_by_value: bool = False
    cache_folder: Path = field(default_factory=cache_folder)
    state_folder: Path = field(default_factory=state_folder)


def environment_name(key: str) -> str:
    """Returns the environment variable that sets `key`."""
    return ENVIRONMENT_PREFIX + key.upper()


# A login may be in these: programs that this machine's verbs start, and jobs, are not told of them.
WITH_LOGIN = ("package_index", "package_proxy")
UNTOLD = tuple(environment_name(key) for key in WITH_LOGIN)


def as_environment(settings: Settings) -> dict[str, str]:
    """Returns the variables that give another process these settings; defaults are left out, and a login."""
    default = type(settings)()
    return {
        name: str(value)
        for spec in fields(settings)
        if (value := getattr(settings, spec.name)) != getattr(default, spec.name)
        and (name := environment_name(spec.name)) not in UNTOLD
    }
