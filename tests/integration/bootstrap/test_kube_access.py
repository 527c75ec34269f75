"""Tests the ways to an API: plugins' credentials that are renewed, certificates' names, proxies, rotation."""

from __future__ import annotations

import base64
import datetime
import json
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from bootstrap.kube import kubeconfig
from bootstrap.kube.api_client import client
from bootstrap.settings import ROOT
from rayside.errors import ClusterUnreachable, CredentialsRefused
from tests.integration.connect_proxy import ConnectProxy, connect_proxy
from tests.integration.scripted_api import TOKEN, ScriptedApi, scripted_api
from tests.integration.self_signed import self_signed

pytestmark = pytest.mark.gate

HOST = "api.test"
PLUGIN = f"""#!{sys.executable}
import json, os, pathlib, sys
folder = pathlib.Path(__file__).parent
with (folder / "runs").open("a") as runs:
    runs.write(os.environ["GREETING"] + " " + " ".join(sys.argv[1:]) + chr(10))
request = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
assert request["kind"] == "ExecCredential"
# Nobody answers a question: a terminal may be another program's, or none may be there.
assert request["spec"] == {{"interactive": False}} and sys.stdin.read() == ""
print((folder / "answer").read_text())
"""


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ScriptedApi]:
    with named_api(tmp_path) as api:
        api.cluster = {"tls-server-name": HOST}
        api.write_kubeconfig()
        yield api


# --- plugins -----------------------------------------------------------------------------


class Plugin:
    """A real program beside the kubeconfig, which gives what its file has."""

    def __init__(self, api: ScriptedApi) -> None:
        self.folder = api.folder
        program = self.folder / "plugin"
        program.write_text(PLUGIN)
        program.chmod(0o700)
        variables = [{"name": "GREETING", "value": "hello"}]
        command = {"command": "./plugin", "args": ["get", "token"], "env": variables}
        api.write_kubeconfig(exec={"apiVersion": "client.authentication.k8s.io/v1", **command})
        self.give(token=TOKEN)

    def give(self, *, expires_in: float = 3600, **status: str | None) -> None:
        end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=expires_in)
        status["expirationTimestamp"] = end.strftime("%Y-%m-%dT%H:%M:%SZ")
        (self.folder / "answer").write_text(json.dumps({"kind": "ExecCredential", "status": status}))

    @property
    def runs(self) -> list[str]:
        file = self.folder / "runs"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def plugin(api: ScriptedApi) -> Plugin:
    return Plugin(api)


def test_a_plugin_runs_once_for_all_that_read_the_same_entry(api: ScriptedApi, plugin: Plugin) -> None:
    for _ in range(3):
        api.kube.require("get", "pods")
    assert plugin.runs == ["hello get token"]


def test_a_refused_token_is_renewed_by_the_plugin(api: ScriptedApi, plugin: Plugin) -> None:
    kube = api.kube
    kube.require("get", "pods")
    api.token = "another"
    plugin.give(token="another")
    kube.require("get", "pods")
    assert len(plugin.runs) == 2


def test_a_plugin_that_gives_what_is_refused_is_told_from_an_api_that_is_gone(
    api: ScriptedApi, plugin: Plugin
) -> None:
    plugin.give(token="wrong")
    with pytest.raises(CredentialsRefused, match="refuses the credentials of scripted"):
        api.kube.require("get", "pods")
    assert len(plugin.runs) == 2


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("", "Expecting value"),
        ("{}", "status"),
        ('{"status": {}}', "neither a token nor a certificate"),
        ('{"status": {"token": null}}', "neither a token nor a certificate"),
        ('{"status": {"token": "x", "clientKeyData": "y"}}', "neither a token nor a certificate"),
        ('{"status": null}', "no status"),
        ("[]", "no status"),
    ],
)
def test_a_plugin_that_gives_nothing_is_said(
    api: ScriptedApi, plugin: Plugin, answer: str, reason: str
) -> None:
    (plugin.folder / "answer").write_text(answer)
    with pytest.raises(CredentialsRefused, match=f"plugin, which .* gave none: .*{reason}") as caught:
        api.kube.require("get", "pods")
    assert "log in" in caught.value.hint
    assert api.requests == []


def test_a_plugin_that_fails_hangs_or_is_not_there_is_said_with_its_own_hint(
    api: ScriptedApi, plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(command: str, *words: str) -> str:
        entry = {"command": command, "args": list(words), "apiVersion": "v1", "installHint": "get it there"}
        api.write_kubeconfig(exec=entry)
        with pytest.raises(CredentialsRefused) as caught:
            api.kube.require("get", "pods")
        assert caught.value.hint == "get it there"
        return caught.value.message

    assert failing("/bin/sh", "-c", "echo not logged in >&2; exit 3").endswith("gave none: not logged in")
    assert "no-such-plugin" in failing("no-such-plugin")
    monkeypatch.setattr(kubeconfig, "_PLUGIN_PATIENCE", 0.3)
    assert "was interrupted" in failing("/bin/sleep", "60")


def test_null_in_a_plugins_answer_is_as_if_it_were_not_there(api: ScriptedApi, plugin: Plugin) -> None:
    plugin.give(token=TOKEN, clientCertificateData=None, clientKeyData=None)
    api.kube.require("get", "pods")


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("cat answer; exit 3", "it ended with exit code 3"),
        ("cat answer; echo first >&2; echo not '\033[1m'now >&2; exit 3", "not now"),
        ("cat answer; printf '%01000d' 1 >&2; exit 3", f"{'0' * 297}..."),
        ("echo my token is scripted-token", "Expecting value: line 1 column 1 (char 0)"),
    ],
)
def test_what_a_plugin_has_printed_is_not_in_the_error(
    api: ScriptedApi, plugin: Plugin, script: str, reason: str
) -> None:
    entry = {"command": "/bin/bash", "args": ["-c", f"cd {plugin.folder}; {script}"], "apiVersion": "v1"}
    api.write_kubeconfig(exec=entry)
    with pytest.raises(CredentialsRefused) as caught:
        api.kube.require("get", "pods")
    assert caught.value.message.endswith(f"gave none: {reason}")
    assert TOKEN not in caught.value.message + caught.value.hint


LEAVES = """
import sys, threading, time
from pathlib import Path
from bootstrap.kube.api_client import client
arguments = Path(sys.argv[1]), "scripted"
threading.Thread(target=client, args=arguments, daemon=True).start()
while True:
    time.sleep(0.05)
"""


def test_a_plugin_does_not_outlive_the_command_that_is_interrupted(api: ScriptedApi, tmp_path: Path) -> None:
    """A step asks for credentials in a thread, which the command leaves behind."""
    entry = {"command": "/bin/sh", "args": ["-c", f"echo $$ > {tmp_path}/pid; exec sleep 600"]}
    api.write_kubeconfig(exec={**entry, "apiVersion": "v1"})
    words = [sys.executable, "-c", LEAVES, str(api.kube.kubeconfig)]
    with subprocess.Popen(words, cwd=ROOT, stderr=subprocess.DEVNULL) as command:
        deadline = time.monotonic() + 20
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        plugin = psutil.Process(int((tmp_path / "pid").read_text()))
        command.send_signal(signal.SIGINT)
        command.wait(20)
    try:
        plugin.wait(0.5)
    except psutil.TimeoutExpired:
        plugin.kill()
        raise


# --- what is secret stays here -----------------------------------------------------------


@pytest.mark.parametrize("server", ["http", "HTTP"])
def test_nothing_is_asked_for_or_sent_over_plain_http(tmp_path: Path, server: str) -> None:
    with scripted_api(tmp_path) as api:
        plugin = Plugin(api)
        address = {"server": f"{server}://127.0.0.1:{api.port}"}
        for user in (
            {"exec": {"apiVersion": "v1", "command": "./plugin"}},
            {"token": TOKEN},
            {"tokenFile": "no-such-file"},
            {"username": "me", "password": "secret"},
        ):
            api.write_kubeconfig(address, **user)
            api.kube.require("get", "pods")
        assert plugin.runs == []


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ({"proxy-url": "socks5://me:secret@proxy.test:1"}, "its proxy socks5://proxy.test:1 is not an HTTP"),
        ({"proxy-url": "http://me:secret/word@proxy.test:1"}, "its proxy http://proxy.test:1 is not an HTTP"),
        ({"proxy-url": "me:secret@proxy.test:1"}, "its proxy proxy.test:1 is not an HTTP"),
        ({"proxy-url": "http://me:secret@proxy.test:x"}, "its proxy http://proxy.test:x is not an HTTP"),
        ({"server": "https://me:secret@127.0.0.1:9"}, "the Kubernetes API at https://127.0.0.1:9 does not"),
        ({"server": "https://me:secret@api.test:x"}, "its server https://api.test:x is not an HTTP server"),
        ({"server": "me:secret@api.test"}, "its server api.test is not an HTTP server"),
    ],
)
def test_no_error_has_the_credentials_of_an_address(
    api: ScriptedApi, address: dict[str, str], reason: str
) -> None:
    api.write_kubeconfig(address)
    with pytest.raises(ClusterUnreachable) as caught:
        reached(api)
    assert reason in caught.value.message
    assert "secret" not in caught.value.message


@pytest.mark.parametrize("way", ["token", "tokenFile", "plugin"])
@pytest.mark.parametrize(
    "token", ["hunter\n2", "hunter\r\n2", "hunter\x002", "hunter 2", "hünter2", "hunter\u20282"]
)
def test_a_token_that_no_header_takes_is_refused_and_not_shown(
    api: ScriptedApi, tmp_path: Path, way: str, token: str
) -> None:
    (tmp_path / "token").write_text(token)
    if way == "plugin":
        Plugin(api).give(token=token)
    else:
        user: dict[str, Any] = {way: token if way == "token" else str(tmp_path / "token")}
        api.write_kubeconfig(**user)
    with pytest.raises(CredentialsRefused, match="a line break or another character") as caught:
        reached(api)
    assert "nter" not in str(caught.value.document())


@pytest.mark.parametrize(
    "acting",
    [{"as": "viewer"}, {"as-uid": "1"}, {"as-groups": ["viewers"]}, {"as-user-extra": {"scopes": ["view"]}}],
)
def test_a_user_that_acts_as_another_is_refused(api: ScriptedApi, acting: dict[str, Any]) -> None:
    api.write_kubeconfig(token=TOKEN, **acting)
    with pytest.raises(ClusterUnreachable, match=rf"acts as another \({next(iter(acting))}\)"):
        reached(api)
    assert api.requests == []


def test_what_a_client_prints_of_itself_is_not_secret(api: ScriptedApi, plugin: Plugin) -> None:
    variables = [{"name": "GREETING", "value": "hunter2"}]
    entry = {"apiVersion": "v1", "command": "./plugin", "args": ["hunter2"], "env": variables}
    api.write_kubeconfig({"proxy-url": "http://me:hunter2@127.0.0.1:1"}, exec=entry)
    shown = repr(client(api.kube.kubeconfig, "scripted"))
    assert plugin.runs == ["hunter2 hunter2"]
    assert TOKEN not in shown
    assert "hunter2" not in shown


def test_a_program_of_an_old_auth_provider_is_not_run(api: ScriptedApi, tmp_path: Path) -> None:
    """The package would run it, and renew tokens that it then does not keep."""
    words = f"-c 'touch {tmp_path}/ran'"
    config = {"cmd-path": "/bin/sh", "cmd-args": words, "access-token": "x", "expiry": "2020-01-01T00:00:00Z"}
    user: dict[str, Any] = {"token": TOKEN, "auth-provider": {"name": "gcp", "config": config}}
    api.write_kubeconfig(**user)
    api.kube.require("get", "pods")
    assert not (tmp_path / "ran").exists()


def test_a_file_with_a_newer_token_goes_before_the_token_beside_it(api: ScriptedApi, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    api.write_kubeconfig(token="stale", tokenFile="token")
    api.kube.require("get", "pods")
    assert len(api.requests) == 1


def test_a_kubeconfig_that_is_replaced_is_read_again(api: ScriptedApi) -> None:
    kube = api.kube
    kube.require("get", "pods")
    api.token = "another"
    api.write_kubeconfig(token="another")
    requests = len(api.requests)
    kube.require("get", "pods")
    assert len(api.requests) == requests + 1


def test_keys_in_a_kubeconfig_lie_on_no_disk_while_the_client_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    with named_api(tmp_path) as api:
        chain, key = (base64.b64encode(file.read_bytes()).decode() for file in self_signed("me", tmp_path))
        authority = base64.b64encode((tmp_path / "ca.crt").read_bytes()).decode()
        for _ in range(2):  # A second client has the same key.
            api.write_kubeconfig(
                {"tls-server-name": HOST, "certificate-authority-data": authority},
                **{"token": TOKEN, "client-certificate-data": chain, "client-key-data": key},
            )
            api.kube.require("get", "pods")
            assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ({"certificate-authority-data": base64.b64encode(b"none").decode()}, "no certificate"),
        ({"certificate-authority": "no-such-file"}, "no-such-file"),
        ({"certificate-authority-data": 7}, "7|int"),
    ],
)
def test_a_ca_that_is_none_is_said(api: ScriptedApi, broken: dict[str, Any], reason: str) -> None:
    api.write_kubeconfig(broken)
    with pytest.raises(ClusterUnreachable, match=rf"(?s)does not lead to a cluster: .*({reason})"):
        api.kube.require("get", "pods")
    assert api.requests == []


# --- certificates and proxies ------------------------------------------------------------


@contextmanager
def named_api(folder: Path) -> Iterator[ScriptedApi]:
    """Serves an API whose certificate is for another name than the address it is reached at."""
    certificate, key = self_signed(HOST, folder)
    shutil.copy(certificate, folder / "ca.crt")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    with scripted_api(folder, context) as api:
        yield api


def reached(api: ScriptedApi) -> None:
    """Requires that the steps' client reaches the API."""
    api.kube.require("get", "pods")


def test_the_name_in_the_certificate_may_be_another_than_the_address(tmp_path: Path) -> None:
    with named_api(tmp_path) as api:
        with pytest.raises(ClusterUnreachable, match=r"certificate is not valid for '127\.0\.0\.1'"):
            reached(api)
        api.write_kubeconfig({"tls-server-name": HOST})
        reached(api)
        api.write_kubeconfig({"tls-server-name": "another.test"})
        with pytest.raises(ClusterUnreachable, match=r"certificate is not valid for 'another\.test'"):
            reached(api)


@pytest.fixture
def proxy() -> Iterator[ConnectProxy]:
    with connect_proxy() as proxy:
        yield proxy


def test_a_proxy_of_the_kubeconfig_is_used_whatever_the_address(
    tmp_path: Path, proxy: ConnectProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    with named_api(tmp_path) as api:
        url = f"http://me:secret@127.0.0.1:{proxy.port}"
        api.write_kubeconfig({"tls-server-name": HOST, "proxy-url": url})
        reached(api)
        assert set(proxy.targets) == {f"127.0.0.1:{api.port}"}
        assert set(proxy.credentials) == {"basic bwu6c2vjcmv0"}


def test_a_proxy_of_the_environment_is_used_but_for_what_it_leaves_out(
    tmp_path: Path, proxy: ConnectProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with named_api(tmp_path) as api:
        # This machine's own addresses never need it.
        api.write_kubeconfig({"tls-server-name": HOST})
        reached(api)
        assert proxy.targets == []
        # Nobody but the proxy knows that name.
        api.write_kubeconfig({"server": f"https://{HOST}:{api.port}"})
        api.kube.require("get", "pods")
        assert proxy.credentials == [""]
        reached(api)
        assert set(proxy.targets) == {f"{HOST}:{api.port}"}
        monkeypatch.setenv("NO_PROXY", ".test")
        monkeypatch.setenv("no_proxy", ".test")
        client(api.kube.kubeconfig, "scripted").refuse()  # The next one is made in this environment.
        with pytest.raises(ClusterUnreachable):
            reached(api)


def test_a_ca_that_is_corrected_on_disk_is_read_again(api: ScriptedApi, tmp_path: Path) -> None:
    right = (tmp_path / "ca.crt").read_bytes()
    (tmp_path / "ca.crt").write_bytes(self_signed(HOST, tmp_path)[0].read_bytes())
    with pytest.raises(ClusterUnreachable, match="certificate verify failed"):
        api.kube.require("get", "pods")
    (tmp_path / "ca.crt").write_bytes(right)
    api.kube.require("get", "pods")


def test_certificates_that_rotate_on_disk_are_read_again(tmp_path: Path) -> None:
    (tmp_path / "past").mkdir()
    past, good = self_signed("client", tmp_path / "past"), self_signed("localhost", tmp_path)
    files = {"client-certificate": tmp_path / "client.crt", "client-key": tmp_path / "client.key"}

    def rotate(pair: tuple[Path, Path]) -> None:
        for source, file in zip(pair, files.values(), strict=True):
            shutil.copy(source, file)

    shutil.copy(good[0], tmp_path / "ca.crt")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    for certificate, _ in (past, good):
        context.load_verify_locations(certificate)
    context.load_cert_chain(*good)
    context.verify_mode = ssl.CERT_REQUIRED
    rotate(past)
    with scripted_api(tmp_path, context) as api:
        names: dict[str, Any] = {key: file.name for key, file in files.items()}
        api.write_kubeconfig({"tls-server-name": "localhost"}, **names)
        api.certificate = ssl.PEM_cert_to_DER_cert(good[0].read_text())
        kube = api.kube
        with pytest.raises(CredentialsRefused):
            kube.require("get", "pods")
        rotate(good)
        kube.require("get", "pods")
        rotate(past)
        api.certificate = ssl.PEM_cert_to_DER_cert(past[0].read_text())
        kube.require("get", "pods")
