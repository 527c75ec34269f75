"""Tests what pods are told of a company's package index: by which files, and that nothing shows a login."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bootstrap.errors import NotOurs
from bootstrap.given_settings import parse
from bootstrap.kube.api import CORE, RAY
from bootstrap.settings import Settings
from bootstrap.steps import local_ray
from bootstrap.steps.package_index import FOLDER, PackageIndex, rayjob_with_it, trusted
from bootstrap.targets import preparation
from rayside.errors import InvalidSetting
from rayside.settings import as_environment
from rayside.steps.step import Condition
from tests.instances import instance
from tests.integration.self_signed import self_signed
from tests.targets import kind_target
from tests.unit.scripted_objects import Objects, applied, objects

SETTINGS = ("package_index", "package_index_ca", "package_proxy")
INDEX = "https://ada:s3cret%2Fword@pypi.test:8443/simple/"
PROXY = "http://eve:pr0xy%2Fword@proxy.test:3128"
SECRET = f"{CORE}/namespaces/team/secrets/rayside-packages"
NAMESPACE = f"{CORE}/namespaces/team"
CLUSTERS = f"{RAY}/namespaces/team/rayclusters"
CLUSTER, VOLUME = f"{CLUSTERS}/rayside", "rayside-packages"


def step(kube: Objects, index: str = INDEX, trusted: str = "", **more: Any) -> PackageIndex:
    return PackageIndex(instance("rayside"), kube, index, trusted, **more)


def api(secret: dict[str, Any] | None = None) -> Objects:
    namespace = {"metadata": {"name": "team"}, "status": {"phase": "Active"}}
    clusters: dict[str, list[dict[str, Any]]] = {CLUSTERS: []}
    return objects(objects={SECRET: secret, NAMESPACE: namespace, CLUSTER: None}, lists=clusters)


# --- the settings ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "address"),
    [
        ("package_index", "https://pypi.test"),
        ("package_index", "https://pypi.test:8443/simple/"),
        ("package_index", "https://10.0.0.7/artifactory/api/pypi/pypi-remote/simple"),
        ("package_index", "https://[fd00::7]:443/simple/"),
        ("package_index", "https://token@pypi.test/simple"),
        ("package_index", "https://a.b%40c:x@pypi.test/simple"),
        ("package_index", INDEX),
        ("package_proxy", "http://proxy.test"),
        ("package_proxy", "http://10.0.0.7:3128/"),
        ("package_proxy", "http://[fd00::7]:3128"),
        ("package_proxy", PROXY),
    ],
)
def test_an_index_by_tls_or_a_proxy_is_taken_with_a_login_or_without(setting: str, address: str) -> None:
    assert getattr(parse({setting: address}, {}), setting) == address


LOOPBACK = "each pod's own loopback address"


@pytest.mark.parametrize(
    ("setting", "address", "told"),
    [
        ("package_index", "http://ada:s3cret@pypi.test/simple", "begins with http://"),
        *(
            ("package_index", address, "no address of a package index")
            for address in (
                *("pypi.test/simple", "ftp://ada:s3cret@pypi.test/simple", "https://ada:s3cret@"),
                "https://ada:s3cret/word@pypi.test/simple",
                "https://ada:s3cret@word@pypi.test/simple",
                "https://ada:s3cret:word@pypi.test/simple",
                "https://pypi.test/simple\nextra-index-url = https://else.test",
                *('https://pypi.test/simple"', "https://pypi.test/simple?s3cret=1"),
                *("https://pypi.test:70000/simple", "https://[1.2]/s3cret"),
            )
        ),
        *(
            ("package_index", f"https://{host}/simple", LOOPBACK)
            for host in (
                *("ada:s3cret@127.0.0.1:3141", "localhost", "LOCALHOST", "[::1]", "[::ffff:127.0.0.1]"),
                "0.0.0.0",
            )
        ),
        ("package_index", ["https://ada:s3cret@pypi.test"], "package_index is not a single value"),
        *(
            ("package_proxy", address, "no address of an HTTP proxy")
            for address in (
                *("proxy.test:3128", "socks5://eve:s3cret@proxy.test:1080", "http://eve:s3cret@"),
                *("http://eve:s3cret/word@proxy.test:3128", "http://proxy.test:3128/s3cret"),
                "http://proxy.test:3128\nindex-url = https://else.test",
                *('http://eve:s3cret"@proxy.test:3128', "http://proxy.test:70000"),
            )
        ),
        ("package_proxy", "http://eve:s3cret@127.0.0.1:3128", LOOPBACK),
        ("package_proxy", ["http://eve:s3cret@proxy.test"], "package_proxy is not a single value"),
    ],
)
def test_what_no_pod_could_use_is_refused_without_a_login(setting: str, address: Any, told: str) -> None:
    with pytest.raises(InvalidSetting, match=told) as refused:
        parse({setting: address}, {})
    assert "s3cret" not in f"{refused.value.message} {refused.value.hint}"


@pytest.mark.parametrize(("setting", "address"), [("package_index", INDEX), ("package_proxy", PROXY)])
def test_nothing_else_is_told_of_it(setting: str, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert as_environment(Settings(**{setting: address})) == {}  # type: ignore[arg-type]
    monkeypatch.setenv(f"INVOKE_RAYSIDE_{setting.upper()}", address)
    assert address not in local_ray._inherited(Path("/bin")).values()


def test_certificates_alone_are_taken_from_a_file(tmp_path: Path) -> None:
    certificate, key = self_signed("pypi.test", tmp_path)
    both = tmp_path / "both.pem"
    both.write_text(f"The company's.\n{key.read_text()}{certificate.read_text()}")
    assert trusted(Settings(package_index_ca=str(both))) == certificate.read_text()


def test_the_mirrors_authority_serves_the_index_too(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    mirrors, _ = self_signed("registry.test", tmp_path)
    own, _ = self_signed("pypi.test", tmp_path / "other")
    assert trusted(Settings(registry_ca=str(mirrors))) == ""
    assert trusted(Settings(registry_ca=str(mirrors), package_index=INDEX)) == mirrors.read_text()
    both = Settings(registry_ca=str(mirrors), package_index_ca=str(own), package_index=INDEX)
    assert trusted(both) == own.read_text()


@pytest.mark.parametrize("content", [None, "not a certificate", "key", "der", "other kind", "too much"])
def test_a_file_without_certificates_is_refused_at_once(content: str | None, tmp_path: Path) -> None:
    file = tmp_path / "authority.pem"
    if content is not None:
        certificate, key = self_signed("pypi.test", tmp_path)
        texts = {"key": key.read_text(), "too much": certificate.read_text() * 2000}
        file.write_text(texts.get(content, content))
        # The other kind is OpenSSL's own, which it reads and others do not: BEGIN TRUSTED CERTIFICATE.
        if options := {"der": ["-outform", "der"], "other kind": ["-trustout"]}.get(content):
            command = ["openssl", "x509", "-in", str(certificate), *options, "-out", str(file)]
            subprocess.run(command, check=True)
    settings = Settings(target="kind", package_index_ca=str(file))
    with pytest.raises(InvalidSetting, match="package_index_ca is") as refused:
        kind_target(settings).steps()
    assert ("KiB" in refused.value.message) == (content == "too much")


def test_down_asks_for_no_file_of_an_authority(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    settings = Settings(target="kind", package_index_ca="/nowhere", state_folder=folder, name="gone")
    (folder / "gone").mkdir(parents=True, mode=0o700)
    folder.chmod(0o700)
    target = kind_target(settings)
    (folder / "gone" / "instance.json").write_text(target.instance.document())
    (removed,) = preparation.removable(settings, target.shell)
    assert "package-index" in [each.name for each in removed.steps()]


# --- the files ---------------------------------------------------------------------------


def test_pip_and_uv_get_the_index_and_the_public_authorities_besides_the_companys(tmp_path: Path) -> None:
    own = self_signed("pypi.test", tmp_path)[0].read_text()
    files = step(api(), trusted=own).files
    assert files["pip.conf"] == f"[global]\nindex-url = {INDEX}\ncert = {FOLDER}/authorities.pem\n"
    assert files["uv.toml"] == f'[[index]]\nurl = "{INDEX}"\ndefault = true\n'
    assert files["authorities.pem"].endswith(own)
    assert files["authorities.pem"].count("BEGIN CERTIFICATE") > 100
    assert step(api()).files.keys() == {"pip.conf", "uv.toml"}
    alone = step(api(), index="", trusted=own).files["pip.conf"]
    assert alone == f"[global]\ncert = {FOLDER}/authorities.pem\n"
    assert step(api(), index="").files == {}


def test_pip_and_uv_get_the_proxy_with_an_index_and_without() -> None:
    files = step(api(), proxy=PROXY).files
    assert files["pip.conf"] == f"[global]\nproxy = {PROXY}\nindex-url = {INDEX}\n"
    proxies = f'http-proxy = "{PROXY}"\nhttps-proxy = "{PROXY}"\n'
    assert files["uv.toml"] == f'{proxies}[[index]]\nurl = "{INDEX}"\ndefault = true\n'
    alone = step(api(), index="", proxy=PROXY).files
    assert alone == {"pip.conf": f"[global]\nproxy = {PROXY}\n", "uv.toml": proxies}


# --- the Secret --------------------------------------------------------------------------


def test_a_secret_has_them_and_follows_the_settings() -> None:
    kube = api()
    assert step(kube).check().condition is Condition.MISSING
    step(kube).apply(print)
    status = step(kube).check()
    assert (status.condition, status.detail) == (Condition.READY, "pypi.test:8443")
    assert step(kube, index="https://other.test/simple").check().condition is Condition.MISSING
    assert kube.objects[SECRET]["metadata"]["labels"]["rayside.dev/instance"] == "rayside"  # type: ignore[index]


def test_another_proxy_is_told_to_the_secret_and_its_login_is_not_shown() -> None:
    kube = api()
    made = step(kube, proxy=PROXY)
    made.apply(print)
    assert made.check().detail == "pypi.test:8443, by the proxy proxy.test:3128"
    assert "pr0xy" not in repr(made)
    assert step(kube, proxy="http://other.test:3128").check().condition is Condition.MISSING
    # Where none is set, nothing is asked for and nothing made.
    assert step(objects(objects={CLUSTER: None}), index="").check().condition is Condition.READY


def test_anothers_secret_of_that_name_is_left_alone() -> None:
    kube = api({"metadata": {"name": "rayside-packages"}, "data": {}})
    with pytest.raises(NotOurs, match="rayside-packages"):
        step(kube).check()
    step(kube).undo(print)
    assert kube.deleted == []


def test_down_removes_ours_whatever_the_settings_say_by_then() -> None:
    kube = api()
    step(kube).apply(print)
    step(kube, index="", cluster_goes=True).undo(print)
    assert kube.deleted == []
    step(kube, index="").undo(print)
    assert kube.deleted == [SECRET]


# --- the pods ----------------------------------------------------------------------------


def manifest(settings: Settings) -> dict[str, Any]:
    made = next(each for each in kind_target(settings).steps() if each.name == "ray-cluster")
    document: dict[str, Any] = made.manifest()  # type: ignore[attr-defined]
    return document


def pods(document: dict[str, Any]) -> list[dict[str, Any]]:
    spec = document["spec"]
    return [group["template"]["spec"] for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"])]


@pytest.mark.parametrize("index", [INDEX, ""])
@pytest.mark.parametrize("proxy", [PROXY, ""])
@pytest.mark.parametrize("with_authority", [True, False])
def test_each_container_that_installs_packages_reads_the_secret_and_no_manifest_has_it(
    index: str, proxy: str, with_authority: bool, tmp_path: Path
) -> None:
    authority = str(self_signed("pypi.test", tmp_path)[0]) if with_authority else ""
    given = {"package_index": index, "package_proxy": proxy, "package_index_ca": authority}
    document = manifest(Settings(target="kind", **given))  # type: ignore[arg-type]
    folders = {FOLDER} if index or proxy or authority else set()
    folders |= {"/etc/xdg/uv"} if index or proxy else set()
    variables = {"PIP_CONFIG_FILE": f"{FOLDER}/pip.conf"} if folders else {}
    variables |= {"SSL_CERT_FILE": f"{FOLDER}/authorities.pem"} if authority else {}
    for pod in pods(document):
        secrets = [each["secret"] for each in pod.get("volumes", []) if each["name"] == "rayside-packages"]
        assert secrets == ([{"secretName": "rayside-packages", "defaultMode": 0o440}] if folders else [])
        for container in pod["containers"]:
            expected = container["name"] != "relay"
            mounts = [each for each in container.get("volumeMounts", []) if each["name"] == VOLUME]
            paths = {each["mountPath"] for each in mounts if each["readOnly"]}
            assert paths == (folders if expected else set())
            told = {each["name"]: each.get("value") for each in container.get("env", [])}
            names = {"PIP_CONFIG_FILE", "SSL_CERT_FILE"} & told.keys()
            assert {name: told[name] for name in names} == (variables if expected else {})
            # Ray's own connections between pods would go to the proxy.
            assert not [name for name in told if "_PROXY" in name.upper()]
    text = json.dumps(document)
    assert not [secret for secret in ("pypi.test", "proxy.test", "CERTIFICATE") if secret in text]
    spec = json.loads(document["metadata"]["annotations"]["rayside.dev/spec"])
    assert spec.get("package_proxy", "") == ("set" if proxy else "")


def own_cluster(**ray: Any) -> dict[str, Any]:
    """Returns a RayJob whose head has the workspace and a stranger beside Ray, and whose workers have Ray."""
    head = [{"name": "main", **ray}, {"name": "workspace"}, {"name": "else"}]
    groups = [{"template": {"spec": {"containers": each}}} for each in (head, [{"name": "main", **ray}])]
    spec = {"rayClusterSpec": {"headGroupSpec": groups[0], "workerGroupSpecs": groups[1:]}}
    return {"metadata": {"name": "own"}, "spec": spec}


def test_a_rayjobs_own_cluster_reads_the_secret_that_up_has_made() -> None:
    kube = api()
    step(kube, trusted="a certificate", proxy=PROXY).apply(print)
    rayjob = own_cluster()
    changed = rayjob_with_it(rayjob, kube, instance("rayside"))
    head, workers = pods({"spec": changed["spec"]["rayClusterSpec"]})
    for pod in (head, workers):
        (volume,) = pod["volumes"]
        # Their users differ, and a pod that comes again after `down` has to start.
        secret = {"secretName": "rayside-packages", "defaultMode": 0o444, "optional": True}
        assert volume["secret"] == secret
    containers = [*workers["containers"], *head["containers"]]
    assert containers.pop() == {"name": "else"}
    for container in containers:
        assert [each["mountPath"] for each in container["volumeMounts"]] == [FOLDER, "/etc/xdg/uv"]
        assert [each["name"] for each in container["env"]] == ["PIP_CONFIG_FILE", "SSL_CERT_FILE"]
    assert rayjob == own_cluster()


def workers_of(rayjob: dict[str, Any], kube: Objects) -> Any:
    """Returns the workers' pod of a RayJob's own cluster as it is sent."""
    return pods({"spec": rayjob_with_it(rayjob, kube, instance("rayside"))["spec"]["rayClusterSpec"]})[1]


def test_what_a_rayjob_itself_says_of_packages_stays() -> None:
    kube = api()
    step(kube, trusted="a certificate").apply(print)
    environment = [{"name": "SSL_CERT_FILE", "value": "/mine"}]
    mounts = [{"name": "mine", "mountPath": "/etc/xdg/uv"}]
    (container,) = workers_of(own_cluster(env=environment, volumeMounts=mounts), kube)["containers"]
    assert [each["mountPath"] for each in container["volumeMounts"]] == ["/etc/xdg/uv", FOLDER]
    assert [each["name"] for each in container["env"]] == ["SSL_CERT_FILE", "PIP_CONFIG_FILE"]
    # Where our files would be, or pip reads others, the container is as it was.
    theirs: dict[str, list[dict[str, str]]]
    for theirs in (
        {"env": [{"name": "PIP_CONFIG_FILE", "value": "/mine"}]},
        {"volumeMounts": [{"name": "mine", "mountPath": FOLDER}]},
    ):
        told = own_cluster(**theirs)
        assert workers_of(told, kube) == pods({"spec": told["spec"]["rayClusterSpec"]})[1]


def test_down_leaves_the_secret_to_clusters_that_read_it() -> None:
    kube = api()
    step(kube).apply(print)
    own = rayjob_with_it(own_cluster(), kube, instance("rayside"))["spec"]["rayClusterSpec"]
    other = {"spec": own_cluster()["spec"]["rayClusterSpec"], "metadata": {"name": "other"}}
    kube.lists[CLUSTERS] = [
        {"spec": own, "metadata": {"name": "rayside"}},
        {"spec": own, "metadata": {"name": "own"}},
        other,
    ]
    left = step(kube).undo(print)
    assert left == "the Secret rayside-packages stays: the RayCluster own reads it"
    assert not kube.deleted
    del kube.lists[CLUSTERS][1]
    assert step(kube).undo(print) is None
    assert kube.deleted == [SECRET]


@pytest.mark.parametrize("secret", [None, {"kind": "Secret", "metadata": {"name": "rayside-packages"}}])
def test_a_rayjob_is_as_it_was_where_up_has_made_no_secret(secret: dict[str, Any] | None) -> None:
    assert rayjob_with_it(own_cluster(), api(secret), instance("rayside")) == own_cluster()


def test_a_setting_that_comes_or_goes_is_drift_and_another_value_is_none() -> None:
    def made_of(index: str) -> dict[str, str]:
        annotations = manifest(Settings(target="kind", package_index=index))["metadata"]["annotations"]
        document: dict[str, str] = json.loads(annotations["rayside.dev/spec"])
        return document

    # One that an earlier version made says nothing of it, and fits.
    assert "package_index" not in made_of("")
    assert made_of(INDEX)["package_index"] == "set"
    assert made_of(INDEX) == made_of("https://other.test/simple")


@pytest.mark.parametrize(
    ("was", "now"),
    [
        (("set", "", ""), ("", "", "")),
        (("", "", ""), (INDEX, "", "")),
        (("set", "set", ""), (INDEX, "", "")),
        (("set", "set", ""), ("", "a certificate", "")),
        (("set", "", ""), (INDEX, "", PROXY)),
        (("", "", "set"), ("", "", "")),
    ],
)
def test_pods_lose_nothing_by_a_refused_up(was: tuple[str, str, str], now: tuple[str, str, str]) -> None:
    kube = api()
    made = {key: value for key, value in zip(SETTINGS, was, strict=True) if value}
    cluster = {"kind": "RayCluster", "metadata": {"annotations": {"rayside.dev/spec": json.dumps(made)}}}
    kube.objects[CLUSTER] = applied(cluster)
    status = step(kube, now[0], now[1], proxy=now[2]).check()
    assert status.condition is Condition.DRIFTED
    assert "not set" in status.detail
    # Another address, or another file, is told to pods that are there.
    others = ("https://other.test", "another", "http://other.test")
    index, authority, proxy = (other if value else "" for other, value in zip(others, was, strict=True))
    as_made = step(kube, index, authority, proxy=proxy)
    assert as_made.check().condition is not Condition.DRIFTED
