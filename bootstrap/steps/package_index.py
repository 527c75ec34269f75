"""Package index for pip and uv in pods: its URL, its proxy, its CA bundle.

Ray's agent on each node installs the packages of a runtime_env with pip and uv, with its container's
environment and files (`_private/runtime_env/pip.py` and `uv.py`, 2.60). The URLs of index and proxy may
contain a login, so they are in files of a Secret, not in the environment of every task; there, Ray's own
requests between pods would go to the proxy, too. Kubernetes updates the files while a pod runs: a new login
needs no new pods.
"""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bootstrap import ca_certificates
from bootstrap.errors import NotOurs
from bootstrap.instance import Instance
from bootstrap.kube.api import CORE, RAY, Kube, made_here, require_namespace
from bootstrap.settings import Settings
from bootstrap.steps.differences import difference, made_of
from rayside.errors import InvalidSetting
from rayside.steps.step import Report, Status, drifted, missing, ready

# PIP_CONFIG_FILE names a file that overrides all other files of pip; variables of the runtime_env override it
# (https://pip.pypa.io/en/stable/topics/configuration/#precedence-override-order).
FOLDER = "/etc/rayside/packages"
# Folder of uv's system configuration, which a project's own configuration may override
# (https://docs.astral.sh/uv/concepts/configuration-files/).
_UVS_FOLDER = "/etc/xdg/uv"
_PIPS_VARIABLE = "PIP_CONFIG_FILE"
_PIP, _UV, _CA_CERTIFICATES = "pip.conf", "uv.toml", "authorities.pem"
_VOLUME = "rayside-packages"
_SETTINGS = ("package_index", "package_index_ca", "package_proxy")
# The relay is left out: it installs nothing.
_WORKSPACE = "workspace"
_CONTAINERS = ("ray-head", _WORKSPACE, "ray-worker")
# Limit in bytes: a Secret holds 1 MiB, and the public CA certificates take a third of it.
_MOST_CERTIFICATES = 512 * 1024


@dataclass(frozen=True)
class PackageIndex:
    """A Secret with the configurations of pip and uv, and the CA bundle; none without these settings.

    Attributes:
        index: its URL; empty for the tools' own default.
        trusted: CA bundle in PEM, in addition to the public CAs; or empty.
        proxy: URL of the HTTP proxy to the index; empty for none.
    """

    instance: Instance
    kube: Kube
    index: str = field(default="", repr=False)
    trusted: str = ""
    proxy: str = field(default="", repr=False)
    cluster_goes: bool = False
    needs: tuple[str, ...] = ("kubeconfig",)
    name: str = "package-index"
    title: str = "package index for pods"

    @property
    def made_of(self) -> dict[str, str]:
        """Returns the names of the given settings, without values; if they change, pods are replaced."""
        values = zip(_SETTINGS, (self.index, self.trusted, self.proxy), strict=True)
        return {name: "set" for name, value in values if value}

    @cached_property
    def files(self) -> dict[str, str]:
        """Returns the files' contents by name."""
        if not self.made_of:
            return {}
        # Values need no escapes: pip interpolates nothing.
        pip = ["[global]"]
        uv = []
        files = {}
        if self.proxy:
            pip.append(f"proxy = {self.proxy}")
            # Since uv 0.9.23; an older one refuses the file, and `diagnose` says so. In TOML these keys have
            # to come before the first table.
            uv += [f'http-proxy = "{self.proxy}"', f'https-proxy = "{self.proxy}"']
        if self.index:
            pip.append(f"index-url = {self.index}")
            uv += ["[[index]]", f'url = "{self.index}"', "default = true"]
        if uv:
            files[_UV] = "\n".join(uv) + "\n"
        if self.trusted:
            pip.append(f"cert = {FOLDER}/{_CA_CERTIFICATES}")
            files[_CA_CERTIFICATES] = _public_ca_certificates() + self.trusted
        return {_PIP: "\n".join(pip) + "\n", **files}

    def add_to(self, pod: dict[str, Any]) -> None:
        """Mounts the Secret in the containers of a pod's specification."""
        if not self.files:
            return
        containers = [each for each in pod["containers"] if each["name"] in _CONTAINERS]
        secret = {"secretName": self.instance.packages_secret, "defaultMode": 0o440}
        _have_read(pod, containers, self.files, secret)

    def check(self) -> Status:
        """Checks it; other settings in existing pods are drift, before anything is changed."""
        cluster = self.kube.ray("rayclusters", self.instance.ray_cluster)
        if cluster and made_here(cluster):
            was = {name: value for name, value in made_of(cluster).items() if name in _SETTINGS}
            if was != self.made_of:
                return drifted(difference(was, self.made_of))
        if not self.files:
            return ready("none is set: pip and uv have their own defaults")
        document = self.kube.get(_path(self.kube, self.instance))
        if document is None:
            require_namespace(self.kube)
            return missing("not made yet")
        if not made_here(document):
            raise NotOurs(
                f"there is a Secret {self.instance.packages_secret} in namespace {self.kube.namespace} that "
                "Rayside did not make",
                hint="./invokew up --name another-name makes a cluster beside it",
            )
        if document.get("data") != self._data:
            return missing("it is of other settings")
        # Only the host, as a path may contain a token.
        index = _host(self.index) or "their own defaults"
        return ready(f"{index}, by the proxy {_host(self.proxy)}" if self.proxy else index)

    def apply(self, report: Report) -> None:
        metadata = {
            "name": self.instance.packages_secret,
            "namespace": self.kube.namespace,
            "labels": self.instance.labels,
        }
        # Not `stringData`: Kubernetes forgets its fields' managers, so a file would outlast its setting.
        self.kube.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": self._data})

    def undo(self, report: Report) -> str | None:
        """Removes it, whatever the current settings, unless clusters of RayJobs, which stay, use it."""
        if self.cluster_goes:
            return None
        name = self.instance.packages_secret
        document = self.kube.get(_path(self.kube, self.instance))
        if document is None or not made_here(document):
            return None
        if readers := self._other_readers():
            return f"the Secret {name} stays: the RayCluster {', '.join(readers)} reads it"
        report(f"removing the Secret {name}")
        self.kube.delete(_path(self.kube, self.instance))
        return None

    def _other_readers(self) -> list[str]:
        """Returns the other RayClusters whose pods use it."""
        clusters = self.kube.items(f"{RAY}/namespaces/{self.kube.namespace}/rayclusters")
        secret = f'"{self.instance.packages_secret}"'
        readers = [each["metadata"]["name"] for each in clusters if secret in json.dumps(each["spec"])]
        return [name for name in readers if name != self.instance.ray_cluster]

    @property
    def _data(self) -> dict[str, str]:
        return {name: base64.b64encode(text.encode()).decode() for name, text in self.files.items()}


def rayjob_with_it(rayjob: Mapping[str, Any], kube: Kube, instance: Instance) -> dict[str, Any]:
    """Returns a RayJob whose own cluster uses the Secret of `up`, if there is one.

    A container with its own configuration of pip is unchanged; in others, the RayJob's own CA certificates
    and mounts for uv stay.
    """
    from bootstrap.kube.rayjob.document import own_pods

    changed = copy.deepcopy(dict(rayjob))
    made = kube.get(_path(kube, instance))
    if made is None or not made_here(made):
        return changed
    # Its pods run as other users and groups, and outlive `down`: the Secret may be gone one day.
    secret = {"secretName": instance.packages_secret, "defaultMode": 0o444, "optional": True}
    for pod in own_pods(changed):
        ray, *others = pod.get("containers") or [{}]  # KubeRay runs Ray in the first
        containers = [ray, *(each for each in others if each.get("name") == _WORKSPACE)]
        _have_read(pod, [each for each in containers if not _is_told(each)], made.get("data") or {}, secret)
    return changed


def _is_told(container: Mapping[str, Any]) -> bool:
    """Returns whether a container has a configuration of pip already, or another mount at our folder."""
    mounts, env = container.get("volumeMounts") or [], container.get("env") or []
    return (
        not container
        or any(each.get("name") == _PIPS_VARIABLE for each in env)
        or any(each.get("mountPath") == FOLDER for each in mounts)
    )


def _have_read(
    pod: dict[str, Any], containers: list[dict[str, Any]], files: Container[str], secret: dict[str, Any]
) -> None:
    """Mounts a Secret's files in containers of a pod's specification, and sets the variables."""
    if not containers:
        return
    pod["volumes"] = [*(pod.get("volumes") or []), {"name": _VOLUME, "secret": secret}]
    folders = (FOLDER, _UVS_FOLDER) if _UV in files else (FOLDER,)
    variables = {_PIPS_VARIABLE: f"{FOLDER}/{_PIP}"}
    if _CA_CERTIFICATES in files:
        # uv has no own variable for it. OpenSSL reads it, too; the bundle includes the public CAs.
        variables["SSL_CERT_FILE"] = f"{FOLDER}/{_CA_CERTIFICATES}"
    for container in containers:
        mounts, env = container.get("volumeMounts") or [], container.get("env") or []
        paths, names = {each.get("mountPath") for each in mounts}, {each.get("name") for each in env}
        free = [folder for folder in folders if folder not in paths]
        mounts = [*mounts, *({"name": _VOLUME, "mountPath": each, "readOnly": True} for each in free)]
        added = [{"name": name, "value": value} for name, value in variables.items() if name not in names]
        container["volumeMounts"], container["env"] = mounts, [*env, *added]


def _path(kube: Kube, instance: Instance) -> str:
    return f"{CORE}/namespaces/{kube.namespace}/secrets/{instance.packages_secret}"


def trusted(settings: Settings) -> str:
    """Returns the CA certificates of `package_index_ca`, else, with an index, of `registry_ca`.

    Raises InvalidSetting.
    """
    name = "package_index_ca"
    if settings.package_index and not settings.package_index_ca:
        name = "registry_ca"
    value = getattr(settings, name)
    if not value:
        return ""
    certificates = ca_certificates.certificates(name, value)
    if len(certificates) > _MOST_CERTIFICATES:
        raise InvalidSetting(
            f"{name} is {value!r}, which has {len(certificates) // 1024} KiB of certificates",
            hint=f"name the file of your company's CA alone, with at most {_MOST_CERTIFICATES // 1024} KiB",
        )
    return certificates


def _host(address: str) -> str:
    """Returns an address's host and port, without a login."""
    return urlsplit(address).netloc.rpartition("@")[2]


def _public_ca_certificates() -> str:
    """Returns Mozilla's CA bundle, which pip and uv contain."""
    # Not at the top: seldom used.
    from requests.utils import DEFAULT_CA_BUNDLE_PATH

    return Path(DEFAULT_CA_BUNDLE_PATH).read_text()
