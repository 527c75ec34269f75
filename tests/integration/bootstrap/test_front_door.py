"""Tests the front door of a workshop: who comes into which place, and what strangers may try."""

from __future__ import annotations

import base64
import contextlib
import csv
import hashlib
import html
import http.client
import json
import os
import re
import shlex
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit

import pytest

from bootstrap.delivery.door_secrets import Entry, Listed
from bootstrap.settings import ROOT, Settings
from bootstrap.sources.go import Go, front_door
from rayside.steps.step import Condition
from rayside.system.shell import Shell
from rayside.waiting import until
from tests.checkout import check_out
from tests.conftest import FIGURE
from tests.http_servers import answering, body_of
from tests.integration.conftest import free_ports
from tests.integration.self_signed import self_signed
from tests.patience import PATIENCE

KEY, TEACHER_KEY = "the-key-of-the-room", "the-key-of-the-teacher"
PROGRESS = "/tmp/the progress.json"
# Its attendee takes this home.
FILES = f"{PROGRESS}.tar.gz"
HOME = "https://example.com/team/rayside.git"
# In seconds: longer than strangers have to send a request.
SLOW = 12
HOUR = 3600
HOST = "workshop.example.com"
SECRETS = "/api/v1/namespaces/default/secrets"
# As a browser whose user has accepted the door's own certificate.
TRUSTS = ssl.create_default_context()
TRUSTS.check_hostname, TRUSTS.verify_mode = False, ssl.CERT_NONE
PLACES, CLAIMS = f"{SECRETS}/rayside-door", f"{SECRETS}/rayside-door-claims"


@pytest.fixture(scope="session")
def program() -> Path:
    shell, cache_folder = Shell(), Settings().cache_folder
    go = Go(shell, cache_folder)
    door = front_door(shell, go, cache_folder)
    for each in (go, door):
        if each.check().condition is Condition.MISSING:
            each.apply(lambda _: None)
    return door.folder / "door"


@contextmanager
def served(owner: Api | Workspace, certificate: tuple[Path, Path] | None = None) -> Iterator[str]:
    with answering(partial(answered, owner), files=certificate) as port:
        yield f"{'https' if certificate else 'http'}://127.0.0.1:{port}"


def answered(owner: Api | Workspace, request: BaseHTTPRequestHandler) -> None:
    if request.headers.get("Upgrade") == "websocket":
        # As code-server does.
        host = request.headers.get("X-Forwarded-Host") or request.headers["Host"]
        if urlsplit(request.headers.get("Origin", f"https://{host}")).netloc != host:
            request.send_error(403)
            return
        request.send_response(101)
        request.send_header("Connection", "Upgrade")
        request.send_header("Upgrade", "websocket")
        request.end_headers()
        while piece := request.connection.recv(100):
            request.wfile.write(piece)
        request.close_connection = True
        return
    body = body_of(request)
    if how := getattr(owner, "hostile", {}).get(urlsplit(request.path).path):
        is_hostile(request, how)
        return
    status, headers, content = owner.answer(request, body)
    request.send_response(status)
    for name, value in (*headers, ("Content-Length", str(len(content)))):
        request.send_header(name, value)
    request.end_headers()
    request.wfile.write(content)


def is_hostile(request: BaseHTTPRequestHandler, how: str) -> None:
    if how == "switches":
        request.wfile.write(b"HTTP/1.1 101 Other\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
    if how in ("breaks off", "is slow", "never ends"):
        request.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
    if how == "is slow":
        time.sleep(SLOW)
        request.wfile.write(b"1\r\nb\r\n0\r\n\r\n")
        return
    request.close_connection = True
    request.connection.settimeout(60)
    with contextlib.suppress(OSError):
        while how == "never ends":
            request.wfile.write(b"100000\r\n" + bytes(1024 * 1024) + b"\r\n")
        # Until the door goes.
        while how != "breaks off" and request.connection.recv(1000):
            pass


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


Answer = tuple[int, list[tuple[str, str]], bytes]


@dataclass
class Api:
    """Is what the door asks of Kubernetes: two Secrets, of which one has another version after each write."""

    listed: str = ""
    data: dict[str, str] = field(default_factory=dict)
    version: int = 1
    token: str = "a token"
    # What becomes of the next writes, as HTTP statuses.
    refuses: list[int] = field(default_factory=list)
    asked: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> Answer:
        with self.lock:
            self.asked += 1
            if request.headers["Authorization"] != f"Bearer {self.token}":
                return 401, [], b"{}"
            if (request.command, request.path) == ("GET", PLACES):
                data = {"places.json": encoded(self.listed)}
                return 200, [], json.dumps({"metadata": {"resourceVersion": "1"}, "data": data}).encode()
            if request.path != CLAIMS:
                return 403, [], b"{}"
            if request.command == "PATCH":
                patch = json.loads(body)
                if self.refuses:
                    return self.refuses.pop(0), [], b"{}"
                if patch["metadata"]["resourceVersion"] != str(self.version):
                    return 409, [], b"{}"
                self.data |= patch["data"]
                self.version += 1
            metadata = {"resourceVersion": str(self.version)}
            return 200, [], json.dumps({"metadata": metadata, "data": self.data}).encode()

    def claims(self) -> dict[str, Any]:
        return dict(json.loads(base64.b64decode(self.data["claims.json"])))

    def keep(self, claims: Mapping[str, Any]) -> None:
        """Has these claims, as somebody else than the door has written them."""
        with self.lock:
            self.data["claims.json"] = encoded(json.dumps(claims))
            self.version += 1


@dataclass
class Workspace:
    """Like code-server for who has no session, and tells what it was asked."""

    name: str
    password: str
    session: str = "a session"
    logins: int = 0
    asked: int = 0
    # What its editor has written; None for nothing. A status, with which it answers all else but a login.
    progress: str | None = None
    fails: int = 0
    # What its attendee has packed, as an answer of code-server's; None for nothing.
    files: Answer | None = None
    # By the path: whether it switches to another protocol, or never answers.
    hostile: dict[str, str] = field(default_factory=dict)
    more: list[tuple[str, str]] = field(default_factory=list)

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> Answer:
        if request.path == "/login":
            self.logins += 1
            if parse_qs(body.decode()).get("password") != [self.password]:
                return 401, [], b"no"
            return (
                302,
                [("Set-Cookie", f"code-server-session={self.session}; Path=/"), ("Location", "./")],
                b"",
            )
        if f"code-server-session={self.session}" not in request.headers.get("Cookie", ""):
            return 302, [("Location", "./login?to=%2F")], b""
        self.asked += 1
        if self.fails:
            return self.fails, [], b""
        address = urlsplit(request.path)
        if address.path == "/vscode-remote-resource":
            if parse_qs(address.query) == {"path": [FILES]}:
                return self.files or (404, [], b"")
            assert parse_qs(address.query) == {"path": [PROGRESS]}
            return (404, [], b"") if self.progress is None else (200, [], self.progress.encode())
        seen = {
            "place": self.name,
            "path": request.path,
            "cookies": request.headers.get("Cookie"),
            "host": request.headers.get("Host"),
            "forwarded": request.headers.get("X-Forwarded-For"),
            "proto": request.headers.get("X-Forwarded-Proto"),
            "ways": sorted(
                name for name in request.headers if re.match("forwarded|x-(for|orig)", name, re.I)
            ),
            "body": body.decode(),
        }
        return 200, [("Content-Type", "application/json"), *self.more], json.dumps(seen).encode()


@dataclass
class Seen:
    status: int
    headers: http.client.HTTPMessage
    content: bytes

    @property
    def text(self) -> str:
        return self.content.decode()

    def json(self) -> dict[str, Any]:
        return dict(json.loads(self.text))


@dataclass
class Browser:
    """Keeps cookies, and goes where it is led."""

    port: int
    cookies: dict[str, str] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)
    # Comes by a proxy, which ends its TLS and was asked for this host.
    host: str = ""

    def ask(
        self, path: str, form: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
    ) -> Seen:
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=PATIENCE, context=TRUSTS)
        if self.host:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)  # type: ignore[assignment]
        by_proxy = {"Host": self.host} if self.host else {}
        sent = {"Accept": "text/html", **by_proxy, **(headers or {})}
        if self.cookies:
            sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        body = None if form is None else urlencode(form)
        if body is not None:
            own = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
            sent = {**own, **sent}
        connection.request("GET" if form is None else "POST", path, body, sent)
        answer = connection.getresponse()
        seen = Seen(answer.status, answer.headers, answer.read())
        connection.close()
        for cookie in answer.headers.get_all("Set-Cookie") or []:
            first, _, attributes = cookie.partition(";")
            name, _, value = first.partition("=")
            self.cookies[name], self.attributes[name] = value, attributes
        return seen

    def go(self, path: str, form: Mapping[str, str] | None = None) -> Seen:
        seen = self.ask(path, form)
        for _ in range(5):
            if seen.status not in (302, 303):
                return seen
            path = urljoin(path, seen.headers["Location"])
            seen = self.ask(path)
        raise AssertionError("it is led in a circle")

    def form(self, path: str = f"/_door/join/{KEY}") -> dict[str, str]:
        """Returns the hidden fields of the form at `path`."""
        hidden = re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', self.go(path).text)
        return dict(hidden)

    def enter(self, name: str = "Ada") -> Seen:
        """Opens the room's link and gives a name."""
        return self.go("/_door/claim", {**self.form(), "name": name})

    def enter_by(self, code: str) -> Seen:
        """Opens a link of the sheet, and says that it is meant."""
        return self.go("/_door/claim", self.form(f"/_door/place/{code}"))


@dataclass
class Door:
    port: int
    teacher_port: int
    plain_port: int
    process: subprocess.Popen[str]
    api: Api
    workspaces: dict[str, Workspace]
    listed: Listed

    def tell(self, *places: Entry, teacher_key: str = TEACHER_KEY, home: str = HOME) -> None:
        """Lists these places, as a teacher's command does."""
        self.api.listed = replace(self.listed, places=places, teacher_key=teacher_key, home=home).text()

    def teacher(self) -> Teacher:
        return Teacher(self.teacher_port)

    def browser(self) -> Browser:
        return Browser(self.port)

    def proxied(self, host: str = HOST) -> Browser:
        return Browser(self.plain_port, host=host)

    @contextmanager
    def connected(self, port: int = 0) -> Iterator[ssl.SSLSocket]:
        with (
            socket.create_connection(("127.0.0.1", port or self.port), timeout=PATIENCE) as plain,
            TRUSTS.wrap_socket(plain) as connection,
        ):
            yield connection


@contextmanager
def opened(
    program: Path, folder: Path, api: Api, attendees: Mapping[str, str], host: str = ""
) -> Iterator[Door]:
    """Opens a door to places of these names, each with its attendee, or with none.

    `host` leads there by a proxy, which ends TLS.
    """
    (folder / "account").mkdir(exist_ok=True)
    (folder / "account" / "token").write_text(api.token)
    port, health, teacher, plain = free_ports(4)
    workspaces = {name: Workspace(name, f"password-of-{name}") for name in attendees}
    with ExitStack() as stack:
        certificate = self_signed("127.0.0.1", folder)
        shutil.copy(certificate[0], folder / "account" / "ca.crt")
        store = stack.enter_context(served(api, certificate))
        urls = {name: stack.enter_context(served(workspace)) for name, workspace in workspaces.items()}
        passwords = {name: workspace.password for name, workspace in workspaces.items()}
        entries = [Entry(name, who, urls[name], passwords[name]) for name, who in attendees.items()]
        listed = Listed(
            "A <workshop>", KEY, TEACHER_KEY, "https://door", "https://teacher", HOME, tuple(entries)
        )
        api.listed = listed.text()
        environment = {
            "RAYSIDE_PLACES": f"{store}{PLACES}",
            "RAYSIDE_CLAIMS": f"{store}{CLAIMS}",
            "RAYSIDE_ACCOUNT": str(folder / "account"),
            "RAYSIDE_LISTEN": f"127.0.0.1:{port}",
            "RAYSIDE_HEALTH": f"127.0.0.1:{health}",
            "RAYSIDE_TEACHER": f"127.0.0.1:{teacher}",
            "RAYSIDE_HOST": host,
            "RAYSIDE_PLAIN": f"127.0.0.1:{plain}",
            "RAYSIDE_PROGRESS": PROGRESS,
            "RAYSIDE_ASK_EVERY": "300ms",
        }
        process = subprocess.Popen([program], env=environment, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        try:
            assert re.search(r"\d+ places at ", line := process.stderr.readline()), line
            yield Door(port, teacher, plain, process, api, workspaces, listed)
        finally:
            process.terminate()
            assert process.wait(10) == 0
            process.stderr.close()


@pytest.fixture
def door(program: Path, tmp_path: Path) -> Iterator[Door]:
    with opened(program, tmp_path, Api(), {"place-01": "", "place-02": "", "place-03": ""}) as it:
        yield it


# --- who comes in ------------------------------------------------------------------------


def test_each_browser_gets_a_place_of_its_own_and_keeps_it(door: Door) -> None:
    ada, grace = door.browser(), door.browser()
    assert ada.enter().json()["place"] == "place-01"
    assert grace.enter("Grace").json()["place"] == "place-02"
    for _ in range(2):
        assert ada.go("/some/file?x=1").json() | {"place": "place-01"} == ada.go("/some/file?x=1").json()
    assert grace.go("/").json()["place"] == "place-02"
    claims = door.api.claims()
    names = {name: claim["attendee"] for name, claim in claims.items()}
    assert names == {"place-01": "Ada", "place-02": "Grace"}
    # What is kept is no cookie.
    assert ada.cookies["__Host-rayside-browser"] not in json.dumps(claims)


def test_all_places_are_told_to_be_taken(door: Door) -> None:
    for _ in range(3):
        assert door.browser().enter().status == 200
    late = door.browser()
    seen = late.enter()
    assert (seen.status, "All places are taken" in seen.text) == (503, True)
    # A teacher adds one, which is seen soon.
    extra = Workspace("place-04", "password-of-place-04")
    with served(extra) as url:
        door.tell(*door.listed.places, Entry("place-04", "", url, extra.password))
        seen = until(lambda: late.enter("Late"), lambda seen: seen.status == 200, PATIENCE)
        assert seen.json()["place"] == "place-04"


def test_a_claim_that_is_sent_again_gives_the_same_place(door: Door) -> None:
    ada = door.browser()
    form = {**ada.form(), "name": "Ada"}

    def send(_: int) -> tuple[str, str]:
        browser = Browser(door.port, dict(ada.cookies))
        return browser.go("/_door/claim", form).json()["place"], browser.cookies["__Host-rayside-browser"]

    with ThreadPoolExecutor(8) as pool:
        assert len({*pool.map(send, range(8))}) == 1
    assert len(door.api.claims()) == 1


def test_a_hundred_attendees_come_in_at_once(
    program: Path, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    names = {f"place-{number:03}": "" for number in range(1, 101)}
    with opened(program, tmp_path, Api(), names) as door:

        def enter(number: int) -> tuple[str, float]:
            began = time.monotonic()
            seen = door.browser().enter(f"Attendee {number}")
            return str(seen.json()["place"]), time.monotonic() - began

        began = time.monotonic()
        with ThreadPoolExecutor(100) as pool:
            entered = [*pool.map(enter, range(100))]
        whole = time.monotonic() - began
    assert {place for place, _ in entered} == {*names}
    # Some 15 s on two processors that others use as well.
    assert whole < 60
    times = sorted(seconds for _, seconds in entered)
    record_property(FIGURE, f"100 attendees at the front door: {whole:.1f} s, p99 {times[98]:.1f} s")


def test_a_place_is_kept_over_a_restart(program: Path, tmp_path: Path) -> None:
    api, names = Api(), {"place-01": "", "place-02": ""}
    with opened(program, tmp_path, api, names) as door:
        ada = door.browser()
        ada.enter()
        certificate = api.data["tls.crt"]
    with opened(program, tmp_path, api, names) as door:
        assert Browser(door.port, ada.cookies).go("/").json()["place"] == "place-01"
        assert door.browser().enter().json()["place"] == "place-02"
        # Attendees have accepted it once.
        assert api.data["tls.crt"] == certificate


def test_a_browser_whose_clock_is_off_comes_in_and_stays(door: Door) -> None:
    """It may be behind by some hours; browsers take no certificate that lasts for more than 398 days."""
    browser = door.browser()
    browser.enter()
    chain = base64.b64decode(door.api.data["tls.crt"])
    printed = subprocess.run(
        ["openssl", "x509", "-noout", "-dates"], input=chain, capture_output=True, check=True
    )
    dates = dict(line.split("=") for line in printed.stdout.decode().splitlines())
    begins, ends = (ssl.cert_time_to_seconds(dates[name]) for name in ("notBefore", "notAfter"))
    assert begins < time.time() - 23 * HOUR
    assert time.time() + 30 * 24 * HOUR < ends < begins + 398 * 24 * HOUR
    # How long a cookie lasts is counted by the browser's own clock, and not by a date that the door names.
    assert browser.attributes
    for attributes in browser.attributes.values():
        assert "Max-Age=" in attributes
        assert "Expires=" not in attributes


def test_a_link_of_the_sheet_leads_into_its_place_from_any_browser(door: Door) -> None:
    ada = door.browser()
    ada.enter()
    elsewhere = door.browser()
    assert elsewhere.enter_by("password-of-place-01").json()["place"] == "place-01"
    assert ada.go("/").json()["place"] == "place-01"
    # Who is there already is led on.
    assert ada.go("/_door/place/password-of-place-01").json()["place"] == "place-01"


@pytest.mark.parametrize("is_by_the_room", [True, False])
def test_however_often_a_teacher_looks_the_attendee_stays(door: Door, is_by_the_room: bool) -> None:
    ada = door.browser()
    seen = ada.enter() if is_by_the_room else ada.enter_by("password-of-place-01")
    assert seen.json()["place"] == "place-01"
    looks = [door.browser() for _ in range(9)]
    # Each claim is kept in Kubernetes, so they come one by one.
    for look in looks:
        seen = until(
            lambda look=look: look.enter_by("password-of-place-01"),  # type: ignore[misc]
            lambda seen: seen.status == 200,
            20,
        )
        assert seen.status == 200
    assert ada.go("/").json()["place"] == "place-01"
    # Of the others the last seven are in.
    assert [look.ask("/").status for look in looks] == [303] * 2 + [200] * 7
    assert len(door.api.claims()["place-01"]["browsers"]) == 8


def test_a_link_from_somebody_else_moves_nobody_unasked(door: Door) -> None:
    ada = door.browser()
    ada.enter()
    seen = ada.go("/_door/place/password-of-place-02")
    assert "you leave the other" in seen.text
    assert ada.go("/").json()["place"] == "place-01"
    assert ada.enter_by("password-of-place-02").json()["place"] == "place-02"
    # The place that she left is hers still.
    assert door.browser().enter("Grace").json()["place"] == "place-03"


def test_what_another_place_left_in_the_browser_goes_with_the_claim(door: Door) -> None:
    """All places are of one origin: a script of one that is in the cache would run in the next."""
    ada = door.browser()
    for form in ({**ada.form(), "name": "Ada"}, ada.form("/_door/place/password-of-place-02")):
        cleared = ada.ask("/_door/claim", form).headers["Clear-Site-Data"]
        assert {*cleared.split(", ")} == {'"cache"', '"storage"'}
    # Else every page would be loaded anew.
    assert "Clear-Site-Data" not in ada.ask("/").headers


def test_one_place_is_claimed_by_its_link_at_a_pace(door: Door) -> None:
    before = door.api.asked
    seen = [door.browser().enter_by("password-of-place-01").status for _ in range(8)]
    assert 429 in seen
    assert len(door.api.claims()["place-01"]["browsers"]) < 8
    assert door.api.asked - before < 16


def test_a_double_click_on_the_button_of_a_place_enters_it(door: Door) -> None:
    ada = door.browser()
    form = ada.form("/_door/place/password-of-place-01")

    def click(_: int) -> tuple[int, str | None]:
        browser = door.browser()
        seen = browser.ask("/_door/claim", form)
        return seen.status, browser.cookies.get("__Host-rayside-browser")

    with ThreadPoolExecutor(2) as pool:
        # The second one comes while the first is being kept.
        with door.api.lock:
            clicks = [pool.submit(click, number) for number in range(2)]
            time.sleep(1)
        seen = [each.result() for each in clicks]
    # And one more once it is.
    seen.append(click(2))
    assert [status for status, _ in seen] == [303] * 3
    assert len({cookie for _, cookie in seen}) == 1
    assert len(door.api.claims()["place-01"]["browsers"]) == 1


def test_a_form_that_is_sent_for_two_places_is_kept_once_for_each(door: Door) -> None:
    form = door.browser().form("/_door/place/password-of-place-01")
    codes = ["password-of-place-01", "password-of-place-02"] * 8
    before = door.api.version
    with ThreadPoolExecutor(len(codes)) as pool:
        # None of them is kept before all have come.
        with door.api.lock:
            sent = [pool.submit(door.browser().ask, "/_door/claim", {**form, "code": code}) for code in codes]
            time.sleep(2)
        assert {each.result().status for each in sent} == {303}
    assert door.api.version - before == 2


def test_the_place_of_somebody_on_the_list_takes_a_code(program: Path, tmp_path: Path) -> None:
    names = {"ada-lovelace": "Ada Lovelace", "place-01": ""}
    with opened(program, tmp_path, Api(), names) as door:
        assert door.browser().enter("Ada Lovelace").json()["place"] == "place-01"
        assert "All places are taken" in door.browser().enter("Ada Lovelace").text
        assert door.browser().enter_by("password-of-ada-lovelace").json()["place"] == "ada-lovelace"
        assert door.api.claims()["ada-lovelace"]["attendee"] == "Ada Lovelace"


# --- what the workspace sees -----------------------------------------------------------------


def test_the_workspace_sees_its_own_session_and_none_of_the_doors(door: Door) -> None:
    ada = door.browser()
    ada.enter()
    ada.cookies |= {"theme": "dark", "code-server-session": "forged", "odd": '"a, b"'}
    seen = ada.ask("/file", headers={"Host": "workshop.example:8444"}).json()
    assert seen["cookies"] == 'code-server-session=a session; theme=dark; odd="a, b"'
    assert seen["host"] == "workshop.example:8444"


def test_the_browser_gets_no_session_and_a_place_can_not_set_the_doors_cookies(door: Door) -> None:
    ada = door.browser()
    ada.enter()
    own = ada.cookies["__Host-rayside-browser"]
    door.workspaces["place-01"].more = [
        ("Set-Cookie", "code-server-session=a session; Path=/"),
        ("Set-Cookie", "__Host-rayside-browser=another; Secure; Path=/"),
        ("Set-Cookie", "theme=dark"),
    ]
    ada.go("/")
    assert ada.cookies["theme"] == "dark"
    assert "code-server-session" not in ada.cookies
    assert ada.cookies["__Host-rayside-browser"] == own
    for name in ("__Host-rayside-browser", "__Host-rayside-room"):
        assert "Secure" in ada.attributes[name]
        assert "HttpOnly" in ada.attributes[name]
        assert "SameSite=Lax" in ada.attributes[name]


def test_a_session_that_ended_is_begun_again(door: Door) -> None:
    ada = door.browser()
    ada.enter()
    door.workspaces["place-01"].session = "a new session"
    assert ada.go("/file").json()["path"] == "/file"
    assert door.workspaces["place-01"].logins == 2


@pytest.mark.parametrize(
    ("path", "location"),
    [
        ("/proxy/8000/", "./login?to=app"),  # an app's own login
        # At the root, code-server leads to the folder that was open last.
        ("/", "./?folder=/home/ray/login"),
        ("/", "./?folder=/home/ray/login-service"),
        ("/", "./?folder=/home/ray/login/"),
    ],
)
def test_what_is_only_called_as_the_page_for_the_password_is_left_alone(
    door: Door, path: str, location: str
) -> None:
    ada = door.browser()
    ada.enter()
    workspace = door.workspaces["place-01"]
    answer = workspace.answer
    workspace.answer = lambda request, body: (  # type: ignore[method-assign]
        (302, [("Location", location)], b"") if request.path == path else answer(request, body)
    )
    assert ada.ask(path).headers["Location"] == location
    assert workspace.logins == 1


def test_a_workspace_that_does_not_answer_is_waited_for(program: Path, tmp_path: Path) -> None:
    with opened(program, tmp_path, Api(), {"place-01": ""}) as door:
        ada = door.browser()
        ada.enter()
        (entry,) = door.listed.places
        gone = replace(entry, url=f"http://127.0.0.1:{free_ports(1)[0]}")
        door.tell(gone)
        seen = until(lambda: ada.go("/"), lambda seen: seen.status == 503, PATIENCE)
        assert "Your place is starting" in seen.text
        assert 'http-equiv="refresh"' in seen.text
        assert ada.ask("/", headers={"Accept": "*/*"}).status == 503


# --- by a proxy ------------------------------------------------------------------------------


@pytest.fixture
def behind(program: Path, tmp_path: Path) -> Iterator[Door]:
    names = {f"place-{number:02}": "" for number in range(1, 21)}
    with opened(program, tmp_path, Api(), names, HOST) as it:
        yield it


def test_a_room_comes_in_by_the_host_of_a_proxy(behind: Door) -> None:
    ada = behind.proxied()
    seen = ada.enter().json()
    assert (seen["place"], seen["host"], seen["proto"]) == ("place-01", HOST, "https")
    assert behind.proxied(HOST.upper()).enter().json()["place"] == "place-02"
    for name in ("__Host-rayside-browser", "__Host-rayside-room"):
        assert "Secure" in ada.attributes[name]
    # What a browser had by one way, it has by the other.
    assert Browser(behind.port, ada.cookies).go("/").json()["place"] == "place-01"


def test_all_who_come_by_one_proxy_get_a_place_each(behind: Door) -> None:
    with ThreadPoolExecutor(20) as pool:
        seen = [*pool.map(lambda number: behind.proxied().enter(f"A{number}").json()["place"], range(20))]
    assert sorted(seen) == sorted(behind.workspaces)


@pytest.mark.parametrize(
    "host", ["evil.example", f"evil.{HOST}", f"{HOST}.", f"{HOST}:8080", "127.0.0.1", "x"]
)
def test_the_port_of_the_proxy_answers_for_its_host_alone(behind: Door, host: str) -> None:
    ada = behind.proxied()
    ada.enter()
    stranger = replace(ada, host=host)
    forged = {"X-Forwarded-Host": HOST, "X-Original-Host": HOST, "Forwarded": f"host={HOST}"}
    for path in ("/", "/_door/", f"/_door/join/{KEY}", "/file"):
        assert stranger.ask(path, headers=forged).status == 421
    origin = {"Sec-Fetch-Site": "", "Origin": f"https://{host}"}
    form = {"once": "x" * 43, "code": "password-of-place-02"}
    assert stranger.ask("/_door/claim", form, origin).status == 421
    assert [*behind.api.claims()] == ["place-01"]


def test_a_load_balancer_learns_that_the_door_is_there_and_nothing_else(behind: Door) -> None:
    balancer = behind.proxied("10.0.0.7:8080")
    assert (balancer.ask("/_door/health").status, balancer.ask("/_door/health").text) == (200, "ok\n")
    assert balancer.ask("/_door/health", {}).status == 421
    assert balancer.ask("/_door/health/x").status == 421


def test_a_form_by_the_proxy_is_of_its_host(behind: Door) -> None:
    ada = behind.proxied()
    form = {**ada.form(), "name": "Ada"}
    for origin in ("https://evil.example", f"http://{HOST}", f"https://{HOST}:8443", "null", ""):
        assert ada.ask("/_door/claim", form, {"Sec-Fetch-Site": "", "Origin": origin}).status == 403
    # Whatever a head says of how it came.
    forged = {"X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "http"}
    evil = {"Sec-Fetch-Site": "", "Origin": "https://evil.example", **forged}
    assert ada.ask("/_door/claim", form, evil).status == 403
    assert "claims.json" not in behind.api.data
    own = {"Sec-Fetch-Site": "", "Origin": f"https://{HOST}", **forged}
    assert ada.ask("/_door/claim", form, own).headers["Location"] == "/"


@pytest.mark.parametrize("is_proxied", [True, False])
def test_a_workspace_hears_from_the_door_alone_how_a_request_came(behind: Door, is_proxied: bool) -> None:
    ada = behind.proxied() if is_proxied else behind.browser()
    ada.enter()
    forged = {
        "Forwarded": "for=203.0.113.1;host=evil.example;proto=http",
        "X-Forwarded-For": "203.0.113.1",
        "X-Forwarded-Host": "evil.example",
        "X-Forwarded-Port": "1",
        "X-Forwarded-Prefix": "/evil",
        "X-Forwarded-Proto": "http",
        "X-Original-Host": "evil.example",
    }
    seen = ada.ask("/file", headers=forged).json()
    assert seen["ways"] == ["X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"]
    host = HOST if is_proxied else f"127.0.0.1:{behind.port}"
    assert (seen["forwarded"], seen["proto"], seen["host"]) == ("127.0.0.1", "https", host)


def seconds_to_end(connection: socket.socket) -> float:
    """Returns how long it takes until the other side ends a connection, which it may say things by before."""
    began = time.monotonic()
    while connection.recv(4096):
        pass
    return time.monotonic() - began


def test_a_body_for_another_host_that_never_comes_is_given_up(behind: Door) -> None:
    with socket.create_connection(("127.0.0.1", behind.plain_port), timeout=PATIENCE) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 10\r\n\r\n")
        assert seconds_to_end(connection) < 20


def test_without_a_host_no_port_is_open_for_a_proxy(door: Door) -> None:
    with pytest.raises(ConnectionRefusedError):
        door.proxied().ask("/")


# --- strangers -------------------------------------------------------------------------------


def test_who_has_no_place_sees_no_workspace(door: Door) -> None:
    stranger = door.browser()
    assert stranger.ask("/any/file", headers={"Accept": "*/*"}).status == 401
    assert stranger.ask("/any/file").headers["Location"] == "/_door/"
    welcome = stranger.go("/").text
    assert "Your name" not in welcome
    assert "place-0" not in welcome
    # Neither a forged cookie nor the hash that is kept is one.
    door.browser().enter()
    for value in ("x", "", door.api.claims()["place-01"]["browsers"][0]):
        forged = Browser(door.port, {"__Host-rayside-browser": value})
        assert forged.ask("/", headers={"Accept": "*/*"}).status == 401
    assert all(workspace.logins == 0 for name, workspace in door.workspaces.items() if name != "place-01")


def test_without_the_rooms_link_a_name_gets_no_place(door: Door) -> None:
    stranger = door.browser()
    stranger.go("/")
    assert stranger.go("/_door/join/another-key").status == 200
    form = {"once": "x" * 43}
    seen = stranger.go("/_door/claim", {**form, "name": "Eve"})
    assert (seen.status, "Open the link" in seen.text) == (403, True)
    stranger.cookies["__Host-rayside-room"] = "guessed"
    assert stranger.go("/_door/claim", {**form, "name": "Eve"}).status == 403
    assert stranger.go("/_door/claim", {**form, "code": "guessed"}).status == 403
    assert stranger.go("/_door/place/guessed").status == 403
    assert stranger.go("/_door/place/").status == 403
    assert "claims.json" not in door.api.data


def test_another_site_can_not_claim_for_a_browser(door: Door) -> None:
    ada = door.browser()
    form = {**ada.form(), "name": "x"}
    for headers in (
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Sec-Fetch-Site": "", "Origin": "https://evil.example"},
        {"Sec-Fetch-Site": "", "Origin": "null"},
        {"Sec-Fetch-Site": ""},
    ):
        assert ada.ask("/_door/claim", form, headers).status == 403
        assert ada.ask("/_door/claim", {**form, "code": "password-of-place-02"}, headers).status == 403
    assert "claims.json" not in door.api.data
    # A browser that says nothing of the site says the origin.
    own = {"Sec-Fetch-Site": "", "Origin": f"https://127.0.0.1:{door.port}"}
    assert ada.ask("/_door/claim", form, own).headers["Location"] == "/"


def test_a_cookie_that_somebody_has_planted_is_none_afterwards(door: Door) -> None:
    planted = "a-cookie-that-eve-knows"
    ada = Browser(door.port, {"__Host-rayside-browser": planted})
    assert ada.enter().json()["place"] == "place-01"
    assert ada.cookies["__Host-rayside-browser"] != planted
    eve = Browser(door.port, {"__Host-rayside-browser": planted})
    assert eve.ask("/", headers={"Accept": "*/*"}).status == 401


def test_a_redirect_stays_here(door: Door) -> None:
    ada = door.browser()
    ada.enter()
    door.workspaces["place-01"].session = "a new session"
    assert ada.ask("//evil.example/x").headers["Location"] == "/evil.example/x"


def test_a_head_without_an_end_is_not_taken_from_a_workspace(door: Door) -> None:
    ada = door.browser()
    ada.enter()
    door.workspaces["place-01"].more = [("X-Much", "x" * 60_000)] * 2
    assert ada.ask("/file", headers={"Accept": "*/*"}).status == 503
    door.workspaces["place-01"].more = []
    assert ada.ask("/file").status == 200


def test_a_form_that_does_not_come_is_given_up(door: Door) -> None:
    ada = door.browser()
    ada.form()
    with door.connected() as connection:
        head = f"POST /_door/claim HTTP/1.1\r\nHost: 127.0.0.1:{door.port}\r\nSec-Fetch-Site: same-origin\r\n"
        connection.sendall(f"{head}Content-Length: 100\r\n\r\nname=".encode())
        began = time.monotonic()
        assert b" 400 " in connection.recv(100)
        assert 5 < time.monotonic() - began < 20


@pytest.mark.parametrize("is_proxied", [True, False])
def test_a_websocket_is_of_its_own_host_and_ends_with_the_claim(behind: Door, is_proxied: bool) -> None:
    ada = behind.proxied() if is_proxied else behind.browser()
    ada.enter()
    host = HOST if is_proxied else f"127.0.0.1:{behind.port}"

    def connected() -> AbstractContextManager[socket.socket]:
        if is_proxied:
            return socket.create_connection(("127.0.0.1", behind.plain_port), timeout=PATIENCE)
        return behind.connected()

    with connected() as connection:
        assert b" 403 " in upgraded(connection, ada, host, "https://evil.example")
    with connected() as connection:
        assert b" 101 " in upgraded(connection, ada, host, f"https://{host}")
        connection.sendall(b"one")
        assert connection.recv(100) == b"one"
        behind.api.keep({})
        assert connection.recv(100) == b""


def upgraded(
    connection: socket.socket, ada: Browser, host: str = "door", origin: str = "https://door"
) -> bytes:
    """Asks for a WebSocket to the place of a browser; returns the beginning of the answer."""
    cookies = "; ".join(f"{name}={value}" for name, value in ada.cookies.items())
    # As a proxy says it, in small letters.
    head = f"GET /ws HTTP/1.1\r\nHost: {host}\r\nCookie: {cookies}\r\nOrigin: {origin}\r\n"
    head += "X-Forwarded-Port: 80\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
    connection.sendall(head.encode())
    return connection.recv(1000)


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("  Ada \t Lovelace ", "Ada Lovelace"),
        ("<script>alert(1)</script>", "<script>alert(1)</script>"),
        ("\x1b[2J\u202eeve\u0000", "[2Jeve"),
        ("é" * 200, "é" * 60),
    ],
)
def test_a_name_is_one_line_that_can_be_shown(door: Door, name: str, kept: str) -> None:
    door.browser().enter(name)
    assert door.api.claims()["place-01"]["attendee"] == kept


@pytest.mark.parametrize("name", ["", " \t", "\x1b\u202e"])
def test_a_name_that_is_none_is_asked_for_again(door: Door, name: str) -> None:
    seen = door.browser().enter(name)
    assert (seen.status, "Give a name" in seen.text) == (400, True)


def test_a_form_that_is_too_large_is_refused(door: Door) -> None:
    ada = door.browser()
    assert ada.ask("/_door/claim", {**ada.form(), "name": "x" * 5000}).status == 400


def test_what_is_shown_is_escaped_and_runs_nothing(door: Door) -> None:
    seen = door.browser().go("/")
    assert "<title>A &lt;workshop&gt;</title>" in seen.text
    policy = seen.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert seen.headers["Cache-Control"] == "no-store"


# --- the claims' Secret ----------------------------------------------------------------------


def test_a_claim_that_can_not_be_kept_is_none(door: Door) -> None:
    door.api.refuses = [500]
    ada = door.browser()
    seen = ada.enter()
    assert (seen.status, "could not be kept" in seen.text) == (503, True)
    assert ada.ask("/").headers["Location"] == "/_door/"
    assert ada.enter().json()["place"] == "place-01"


def test_a_claim_that_somebody_else_wrote_meanwhile_is_kept(door: Door) -> None:
    claims = {"place-01": {"attendee": "Eve", "since": "2026-11-27T10:00:00Z", "browsers": []}}
    door.api.keep(claims)
    assert door.browser().enter().json()["place"] == "place-02"
    assert door.api.claims()["place-01"]["attendee"] == "Eve"


def test_claims_that_a_teacher_takes_back_are_free_again(door: Door) -> None:
    ada = door.browser()
    ada.enter()
    door.api.keep({})
    until(lambda: ada.ask("/").headers["Location"], lambda location: location == "/_door/", PATIENCE)
    assert door.browser().enter("Grace").json()["place"] == "place-01"


@pytest.mark.parametrize("address", ["", "nowhere", "http://127.0.0.1:1/secrets/x"])
def test_a_door_whose_secret_is_not_to_be_had_does_not_open(
    program: Path, tmp_path: Path, address: str
) -> None:
    """The account's token would go there."""
    certificate, _ = self_signed("127.0.0.1", tmp_path)
    shutil.copy(certificate, tmp_path / "ca.crt")
    (tmp_path / "token").write_text("a token")
    environment = {"RAYSIDE_ACCOUNT": str(tmp_path), "RAYSIDE_PLACES": address}
    done = subprocess.run(
        [program], env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, "RAYSIDE_PLACES is not" in done.stderr) == (1, True)


# --- what an attendee takes home -------------------------------------------------------------


def commands(seen: Seen) -> list[str]:
    """Returns what the last page has to be pasted."""
    return [html.unescape(text) for text in re.findall(r"<pre>(.*?)</pre>", seen.text, re.DOTALL)]


def test_the_last_page_has_two_commands_and_runs_nothing(door: Door) -> None:
    ada = door.browser()
    ada.enter()
    seen = ada.ask("/_door/home")
    assert seen.status == 200
    assert commands(seen) == [
        f"git clone {HOME} rayside && tar -xzf place-01.tar.gz -C rayside labs",
        "cd rayside && ./invokew up",
    ]
    assert 'href="/_door/home/files"' in seen.text
    assert "Ask your teacher" not in seen.text
    assert "<script" not in seen.text
    policy = seen.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "script-src" not in policy
    assert (seen.headers["X-Content-Type-Options"], seen.headers["Cache-Control"]) == ("nosniff", "no-store")


def test_the_last_page_asks_for_an_address_that_nobody_told_and_escapes_all(door: Door) -> None:
    ada = door.browser()
    ada.enter()
    door.tell(*door.listed.places, home="")
    seen = until(lambda: ada.ask("/_door/home"), lambda seen: "Ask your teacher" in seen.text, PATIENCE)
    assert "Ask your teacher" in seen.text
    assert commands(seen)[0].startswith("git clone ADDRESS rayside && ")
    door.tell(*door.listed.places, home="<script>")
    seen = until(lambda: ada.ask("/_door/home"), lambda seen: "script" in seen.text, PATIENCE)
    assert "&lt;script&gt;" in seen.text


def packed(content: bytes, kind: str = "text/html") -> Answer:
    return 200, [("Content-Type", kind), ("Content-Disposition", "inline"), ("Set-Cookie", "a=b")], content


def test_each_attendee_gets_their_own_files_as_a_file(door: Door) -> None:
    ada, grace = door.browser(), door.browser()
    ada.enter()
    grace.enter("Grace")
    for name in ("place-01", "place-02"):
        door.workspaces[name].files = packed(b"\x1f\x8b" + name.encode())
    for browser, name in ((ada, "place-01"), (grace, "place-02")):
        seen = browser.ask("/_door/home/files")
        assert (seen.status, seen.content) == (200, b"\x1f\x8b" + name.encode())
        assert seen.headers["Content-Type"] == "application/gzip"
        assert seen.headers["Content-Disposition"] == f"attachment; filename={name}.tar.gz"
        assert seen.headers["X-Content-Type-Options"] == "nosniff"
        assert seen.headers["Content-Security-Policy"] == "default-src 'none'; sandbox"
        assert seen.headers["Set-Cookie"] is None


def test_without_a_place_nothing_is_taken_home(door: Door) -> None:
    door.browser().enter()
    door.workspaces["place-01"].files = packed(b"Ada's")
    for browser in (door.browser(), Browser(door.port, {"__Host-rayside-browser": "guessed"})):
        for path in ("/_door/home", "/_door/home/files"):
            seen = browser.ask(path)
            assert (seen.status, "place-01" in seen.text, "Ada" in seen.text) == (403, False, False)


@pytest.mark.parametrize(
    ("answer", "status", "told"),
    [
        (None, 404, "Nothing is packed"),
        ((302, [("Location", "https://elsewhere.example/")], b""), 503, "does not answer"),
        ((206, [], b"a part"), 503, "does not answer"),
        ((500, [], b"<script>"), 503, "does not answer"),
        (packed(bytes(64 * 1024 * 1024 + 1)), 502, "more than 64 MiB"),
    ],
)
def test_what_a_workspace_answers_instead_of_files_is_no_file(
    door: Door, answer: Answer | None, status: int, told: str
) -> None:
    ada = door.browser()
    ada.enter()
    door.workspaces["place-01"].files = answer
    seen = ada.ask("/_door/home/files")
    assert (seen.status, told in seen.text) == (status, True)
    assert (seen.headers["Location"], seen.headers["Content-Disposition"]) == (None, None)


@pytest.mark.parametrize("how", ["never ends", "breaks off"])
def test_files_that_do_not_come_whole_are_seen_not_to(door: Door, how: str) -> None:
    ada = door.browser()
    ada.enter()
    door.workspaces["place-01"].hostile = {"/vscode-remote-resource": how}
    # Of what is short, nothing may have come at all.
    with pytest.raises(http.client.HTTPException) as failure:
        ada.ask("/_door/home/files")
    assert len(getattr(failure.value, "partial", b"")) <= 64 * 1024 * 1024 + 1
    assert ada.go("/").status == 200


def test_files_may_take_longer_than_a_strangers_request(door: Door) -> None:
    ada = door.browser()
    ada.enter()
    door.workspaces["place-01"].hostile = {"/vscode-remote-resource": "is slow"}
    assert ada.ask("/_door/home/files").content == b"ab"


def test_files_end_with_the_claim(door: Door) -> None:
    ada = door.browser()
    ada.enter()
    door.workspaces["place-01"].hostile = {"/vscode-remote-resource": "is slow"}
    began = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ada.ask, "/_door/home/files")
        time.sleep(1)
        door.api.keep({})
        with pytest.raises(http.client.HTTPException):
            waiting.result(30)
    assert time.monotonic() - began < SLOW


def test_the_two_commands_bring_the_labs_with_what_was_edited(door: Door, tmp_path: Path) -> None:
    """The second one brings a cluster up; here a verb says which copy of a lab it would take."""
    ada = door.browser()
    ada.enter()
    attendees = tmp_path / "the place" / "rayside" / "labs" / "01-breakpoint"
    attendees.mkdir(parents=True)
    (attendees / "answers.yaml").write_text("what: I found\n")
    (attendees / ".lab.json").write_text('{"steps_done": 2, "passed": true, "checks_failed": 0}')
    done = subprocess.run(
        [ROOT / "image" / "workspace" / "pack-files"],
        env={**os.environ, "HOME": str(tmp_path / "the place"), "RAY_TMPDIR": str(tmp_path / "none")},
        capture_output=True,
        check=True,
    )
    door.workspaces["place-01"].files = packed(done.stdout)
    origin = check_out(tmp_path / "origin")
    git = ["git", "-C", str(origin), "-c", "user.name=A", "-c", "user.email=a@example.com"]
    for words in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message", "All"]):
        subprocess.run([*git, *words], check=True)
    home = tmp_path / "at home"
    home.mkdir()
    (home / "place-01.tar.gz").write_bytes(ada.ask("/_door/home/files").content)
    first, second = commands(ada.ask("/_door/home"))
    first = first.replace(HOME, shlex.quote(origin.as_uri()))
    subprocess.run(["sh", "-ec", first], cwd=home, check=True)
    before, up, after = second.partition("./invokew up")
    assert (before, after) == ("cd rayside && ", "")
    # As `./invokew` does once it has an environment.
    verb = f"{shlex.quote(sys.executable)} -m invoke --search-root . labs --json"
    labs = subprocess.run(["sh", "-ec", before + verb], cwd=home, capture_output=True, check=True).stdout
    copy = home / "rayside" / "labs" / "01-breakpoint"
    known = {lab["name"]: (lab["folder"], lab["passed"]) for lab in json.loads(labs)}
    assert known["01-breakpoint"] == (str(copy), True)
    assert [name for name, (_, passed) in known.items() if passed] == ["01-breakpoint"]
    assert (copy / "answers.yaml").read_text() == "what: I found\n"
    assert up


# --- the teacher's page --------------------------------------------------------------------


@dataclass
class Teacher:
    """Reads the teacher's page as its script does."""

    port: int
    key: str = TEACHER_KEY
    version: str = ""
    last: dict[str, dict[str, Any]] = field(default_factory=dict)

    def ask(self, path: str, *, method: str = "GET", headers: Mapping[str, str] | None = None) -> Seen:
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=PATIENCE, context=TRUSTS)
        connection.request(method, path, headers=headers or {"Authorization": f"Bearer {self.key}"})
        answer = connection.getresponse()
        seen = Seen(answer.status, answer.headers, answer.read())
        connection.close()
        return seen

    def places(self) -> dict[str, dict[str, Any]]:
        """Returns the places by their names, once they are not as they were when this was asked last."""
        document = self.ask(f"/places?after={self.version}").json()
        self.version = document["version"]
        self.last = {row["name"]: row for row in document["places"]}
        return self.last

    def sees(self, place: str, *, patience: float = 40, **expected: Any) -> dict[str, Any]:
        """Returns the place once it is so; what was seen last counts."""

        def is_so(places: dict[str, dict[str, Any]]) -> bool:
            its = places.get(place, {})
            return {**its, **expected} == its

        if not is_so(self.last):
            until(self.places, is_so, patience)
        assert is_so(self.last), self.last.get(place)
        return self.last[place]


LESSON = {"title": "Lab 4: Many", "step": 2, "steps": 5, "passed": False, "checks_failed": 0}


def told(**more: Any) -> dict[str, Any]:
    """Returns what an editor writes."""
    return {"lab": LESSON, "labs_passed": 3, "stopped": "", "idle": 2, "help": None, **more}


# By the place: what its editor has told, and what its tile says. The last has no browser connected.
TILES: dict[str, tuple[dict[str, Any] | None, dict[str, Any]]] = {
    "fresh": (None, {"state": "working", "lab": "", "detail": "", "labs_passed": 0}),
    "working": (told(), {"state": "working", "lab": "Lab 4: Many, step 2 of 5", "labs_passed": 3}),
    "idle": (told(idle=400), {"state": "idle"}),
    "stopped": (
        told(idle=400, stopped="work and 2 more"),
        {"state": "stopped", "detail": "stopped in work and 2 more"},
    ),
    "stuck": (told(lab={**LESSON, "checks_failed": 3}), {"detail": "the check failed 3 times"}),
    "passed": (
        told(lab={**LESSON, "passed": True, "checks_failed": 3}),
        {"state": "working", "lab": "Lab 4: Many, passed"},
    ),
    "help": (told(help={"text": "my task", "may_look": False}), {"detail": "my task", "look": None}),
    "look": (
        told(help={"text": "", "may_look": True}),
        {"state": "help", "detail": "asks for help", "look": "https://door/_door/place/password-of-look"},
    ),
    "away": (told(), {"state": "away", "labs_passed": 3}),
}


def test_the_teacher_sees_what_each_attendee_is_at(program: Path, tmp_path: Path) -> None:
    with opened(program, tmp_path, Api(), dict.fromkeys([*TILES, "free"], "")) as door, ExitStack() as stack:
        teacher = door.teacher()
        assert {row["state"] for row in teacher.places().values()} == {"free"}
        for name, (progress, _) in TILES.items():
            ada = door.browser()
            assert ada.enter(f"Ada {name}").json()["place"] == name
            if progress:
                door.workspaces[name].progress = json.dumps(progress)
            if name != "away":
                connection = stack.enter_context(door.connected())
                assert b" 101 " in upgraded(connection, ada)
        for name, (_, expected) in TILES.items():
            tile = {**expected}
            look = tile.pop("look", None)
            seen = teacher.sees(name, attendee=f"Ada {name}", **tile)
            assert (seen.get("look"), seen["state"]) == (look, tile.get("state", name))
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", seen["since"])
        assert teacher.last["free"]["state"] == "free"
        # What is told later is seen later.
        door.workspaces["look"].progress = json.dumps(told())
        assert "look" not in teacher.sees("look", state="working")


def test_a_place_that_is_freed_tells_nothing_of_who_had_it(door: Door) -> None:
    teacher, ada = door.teacher(), door.browser()
    ada.enter("Ada")
    door.workspaces["place-01"].progress = json.dumps(told(help={"text": "secret", "may_look": True}))
    teacher.sees("place-01", state="help")
    # It is the next one's at once, and does not answer by now.
    door.workspaces["place-01"].fails = 500
    claims = {"place-01": {"attendee": "Bob", "since": "2026-11-27T10:00:00Z", "browsers": []}}
    door.api.keep(claims)
    seen = teacher.sees("place-01", attendee="Bob")
    assert (seen["lab"], seen["labs_passed"], seen.get("look")) == ("", 0, None)
    assert "secret" not in json.dumps(seen)
    door.api.keep({})
    seen = teacher.sees("place-01", state="free")
    assert (seen["attendee"], seen["detail"]) == ("", "")


def test_a_workspace_that_does_not_answer_is_told(program: Path, tmp_path: Path) -> None:
    with opened(program, tmp_path, Api(), {"place-01": ""}) as door:
        teacher = door.teacher()
        door.browser().enter("Ada")
        workspace = door.workspaces["place-01"]
        workspace.progress = json.dumps(told())
        teacher.sees("place-01", state="away", labs_passed=3)
        workspace.fails = 500
        # What it told last is not forgotten.
        teacher.sees("place-01", state="lost", labs_passed=3, lab="Lab 4: Many, step 2 of 5")
        workspace.fails = 0
        teacher.sees("place-01", state="away")


@pytest.mark.parametrize("path", ["/vscode-remote-resource", "/login"])
@pytest.mark.parametrize("how", ["switches", "hangs"])
def test_a_place_that_answers_with_nothing_holds_up_no_other(door: Door, path: str, how: str) -> None:
    """An attendee may serve what they like at the workspace's port."""
    hostile, teacher = door.browser(), door.teacher()
    hostile.enter("Eve")
    workspace = door.workspaces["place-01"]
    workspace.session, workspace.hostile = "another", {path: how}
    door.browser().enter("Ada")
    door.workspaces["place-02"].progress = json.dumps(told())
    teacher.sees("place-02", labs_passed=3)
    seen = teacher.sees("place-01", state="lost")
    assert seen["attendee"] == "Eve"
    # It is asked again and again.
    workspace.hostile = {}
    teacher.sees("place-01", state="away", patience=60)


@pytest.mark.parametrize(
    "text",
    [
        "no JSON",
        "[1]",
        '{"labs_passed": "many"}',
        '{"labs_passed": 1e400}',
        '{"lab": 3}',
        json.dumps(told(labs_passed=7))[:-1] + " " * 20_000 + "}",
    ],
)
def test_what_an_attendee_spoils_is_nothing(door: Door, text: str) -> None:
    teacher = door.teacher()
    door.browser().enter("Ada")
    door.workspaces["place-01"].progress = text
    assert teacher.sees("place-01", attendee="Ada", state="away")["labs_passed"] == 0


def test_what_an_attendee_tells_is_bounded_and_one_line(door: Door) -> None:
    teacher = door.teacher()
    door.browser().enter("Ada")
    lab = {
        "title": "a\n\u202eb" + "c" * 500,
        "step": 10**12,
        "steps": 10**12,
        "passed": False,
        "checks_failed": 0,
    }
    text = json.dumps(told(lab=lab, labs_passed=10**9, help={"text": "x\ty\x00" * 300, "may_look": False}))
    door.workspaces["place-01"].progress = text
    seen = teacher.sees("place-01", state="help", labs_passed=1000)
    assert re.fullmatch(r"a bc+, step 99 of 99", seen["lab"])
    assert len(seen["lab"]) < 230
    assert re.fullmatch(r"(x y)+x? ?", seen["detail"])
    assert len(seen["detail"]) <= 200


def test_the_table_has_no_formula(door: Door) -> None:
    teacher = door.teacher()
    door.browser().enter("=1+1")
    door.browser().enter("x;=1+1;y")
    teacher.sees("place-02", attendee="x;=1+1;y")
    rows = [*csv.reader(teacher.ask("/places.csv?after=nothing").text.splitlines())]
    assert rows[0][:4] == ["place", "attendee", "since", "state"]
    assert (rows[1][0], rows[1][1], rows[1][3]) == ("place-01", "'=1+1", "away")
    assert rows[2][1] == "x,=1+1,y"


def test_an_answer_waits_for_what_is_new(door: Door) -> None:
    teacher = door.teacher()
    teacher.places()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(teacher.places)
        time.sleep(1)
        assert not waiting.done()
        door.browser().enter("Ada")
        assert waiting.result(20)["place-01"]["attendee"] == "Ada"


def test_nobody_asks_the_places_while_nobody_looks(door: Door) -> None:
    door.browser().enter("Ada")
    logins = door.workspaces["place-01"].asked
    time.sleep(4)
    assert door.workspaces["place-01"].asked == logins


@pytest.mark.parametrize(
    "headers",
    [{}, {"Authorization": "Bearer "}, {"Authorization": f"Bearer {KEY}"}, {"Authorization": "Bearer x"}],
)
@pytest.mark.parametrize("path", ["/places", "/places.csv"])
def test_without_its_key_the_page_tells_nothing(door: Door, path: str, headers: dict[str, str]) -> None:
    door.browser().enter("Ada")
    seen = door.teacher().ask(path, headers={**headers, "X-None": "1"})
    assert (seen.status, "Ada" in seen.text, seen.headers["Connection"]) == (401, False, "close")


def test_a_body_that_never_comes_holds_no_connection_of_the_teachers_port(door: Door) -> None:
    with door.connected(door.teacher_port) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: door\r\nContent-Length: 10\r\n\r\n")
        assert seconds_to_end(connection) < 25


def test_at_the_teachers_port_nothing_is_done_and_no_place_is(door: Door) -> None:
    teacher = door.teacher()
    assert teacher.ask("/places", method="POST").status == 405
    for path in ("/_door/", f"/_door/join/{KEY}", "/vscode", "/places/"):
        assert teacher.ask(path).status == 404
    seen = teacher.ask("/", headers={"X-None": "1"})
    assert (seen.status, "<h1" in seen.text) == (200, True)
    policy = seen.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    for tag in ("script", "style"):
        inner = seen.text.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
        digest = base64.b64encode(hashlib.sha256(inner.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    # Nor does the attendees' port have it.
    assert door.browser().ask("/places", headers={"Authorization": f"Bearer {TEACHER_KEY}"}).status != 200


def test_a_list_without_a_teachers_key_has_no_teacher(program: Path, tmp_path: Path) -> None:
    with opened(program, tmp_path, Api(), {"place-01": ""}) as door:
        door.tell(*door.listed.places, teacher_key="")
        teacher = door.teacher()
        until(lambda: teacher.ask("/places").status, lambda status: status == 401, PATIENCE)
        # By Go an empty key comes without the space before it, if it is sent so.
        for words in ("Bearer ", "Bearer  ", "Bearer", f"Bearer {TEACHER_KEY}"):
            assert teacher.ask("/places", headers={"Authorization": words}).status == 401
