"""Air-gapped machine next to this one: a network namespace with a separate Docker engine.

Packets that leave the namespace are dropped and counted: from the engine, its containers and the host's own
programs. There is a default route, as in a company's network, so that attempts are seen. A resolver answers
there, also at the addresses of this machine's resolvers. It resolves no name, and records the requested ones.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bootstrap.steps.engine import Engine
from rayside.system.shell import Shell
from rayside.waiting import until

NAMESPACE = "rayside-airgap"
# An address that RFC 5737 reserves for documentation: no host has it.
ADDRESS = "192.0.2.2"
_HERE, _THERE = f"{ADDRESS}/30", "192.0.2.1/30"
_RULES = """
table inet airgap {{
    set left {{ type ipv4_addr; flags dynamic; size 1024; counter; }}
    chain leave {{
        ip daddr {{ {own} }} drop
        add @left {{ ip daddr }}
        drop
    }}
    chain output {{ type filter hook output priority 0; oifname "{out}" jump leave; }}
    chain forward {{ type filter hook forward priority 0; oifname "{out}" jump leave; }}
}}
"""
_OUT = "rs-out"
# Answers each query with NXDOMAIN, and records the name: RFC 1035, section 4.1. It listens on every address,
# as the machine's resolver may be on a loopback address, where nothing else listens in the namespace.
_RESOLVER = """
import socket, sys
port = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
port.bind(("", 53))
print("listens", flush=True)
with open(sys.argv[1], "a", buffering=1) as names:
    while True:
        question, asker = port.recvfrom(4096)
        labels, at = [], 12
        while at < len(question) and question[at]:
            labels.append(question[at + 1 : at + 1 + question[at]].decode("latin-1"))
            at += 1 + question[at]
        print(".".join(labels).lower(), file=names)
        port.sendto(question[:2] + bytes([0x81, 0x83]) + question[4:], asker)
"""
# Networks of the cluster's services and pods: the kernel has no route to them while a node starts or ends.
_OWN = "10.96.0.0/16, 10.244.0.0/16"


@dataclass(frozen=True)
class Airgap:
    """Network namespace with an engine; `folder` contains all of the engine's data."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """Returns the environment of a user there: an empty cache, no settings of this machine."""
        home = self.folder / "home"
        keep = {name: os.environ[name] for name in ("PATH", "LANG", "TERM") if name in os.environ}
        return {**keep, "HOME": str(home), "DOCKER_HOST": f"unix://{self.folder}/docker.sock"}

    def command(self, *arguments: str | Path) -> list[str]:
        """Returns the command that runs a program in the namespace."""
        return ["nsenter", f"--net=/run/netns/{NAMESPACE}", *map(str, arguments)]

    def run(self, *arguments: str | Path, timeout: float = 120, cwd: Path | None = None, **more: str) -> str:
        """Runs a program in the namespace to its end; returns its output."""
        done = subprocess.run(
            self.command(*arguments),
            cwd=cwd,
            env={**self.environment, **more},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout

    def left(self) -> dict[str, int]:
        """Returns the number of dropped packets for each destination address."""
        listed = json.loads(self.run("nft", "--json", "list", "set", "inet", "airgap", "left"))["nftables"]
        elements = next(each["set"] for each in listed if "set" in each).get("elem", [])
        return {each["elem"]["val"]: each["elem"]["counter"]["packets"] for each in elements}

    def asked(self) -> set[str]:
        """Returns the requested names, without CoreDNS's own requests to detect loops.

        Their names are two random numbers: https://coredns.io/plugins/loop/.
        """
        names = set(self._names.read_text().split()) if self._names.exists() else set()
        return {name for name in names if not re.fullmatch(r"\d+\.\d+", name)}

    @property
    def _names(self) -> Path:
        return self.folder / "names"


@contextlib.contextmanager
def airgap() -> Iterator[Airgap]:
    """Yields the air-gapped machine, with an empty running engine; removes everything afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="rs-air-", dir="/tmp"))
    gap = Airgap(folder)
    (folder / "home").mkdir()
    _remove()
    try:
        for words in (
            f"netns add {NAMESPACE}",
            f"link add {_OUT} netns {NAMESPACE} type veth peer name rs-world",
            f"-n {NAMESPACE} link set lo up",
            f"-n {NAMESPACE} address add {_HERE} dev {_OUT}",
            # The kernel itself searches for neighbors and routers with IPv6.
            f"netns exec {NAMESPACE} sysctl --quiet --write net.ipv6.conf.{_OUT}.disable_ipv6=1",
            f"-n {NAMESPACE} link set {_OUT} up",
            *(f"-n {NAMESPACE} address add {each}/32 dev lo" for each in _resolvers()),
            f"address add {_THERE} dev rs-world",
            "link set rs-world up",
            f"-n {NAMESPACE} route add default via {_THERE.partition('/')[0]}",
        ):
            _ip(words)
        rules = folder / "rules"
        rules.write_text(_RULES.format(out=_OUT, own=_OWN))
        gap.run("nft", "--file", rules)
        with _resolver(gap), _engine(gap):
            yield gap
    finally:
        _remove()
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _resolver(gap: Airgap) -> Iterator[None]:
    with subprocess.Popen(
        gap.command(sys.executable, "-c", _RESOLVER, gap._names), stdout=subprocess.PIPE, text=True
    ) as resolver:
        try:
            assert resolver.stdout is not None
            assert resolver.stdout.readline() == "listens\n"
            yield
        finally:
            resolver.terminate()


@contextlib.contextmanager
def _engine(gap: Airgap) -> Iterator[None]:
    options = [
        *(f"--{name}={gap.folder}/{name}" for name in ("data-root", "exec-root")),
        f"--dns={ADDRESS}",
        *(f"--host=unix://{gap.folder}/docker.sock", f"--pidfile={gap.folder}/docker.pid"),
        *Engine(Shell()).runtime_options(),
    ]
    with (
        (gap.folder / "dockerd.log").open("wb") as log,
        subprocess.Popen(
            gap.command("dockerd", *options), env=gap.environment, stdout=log, stderr=log
        ) as engine,
    ):
        try:
            assert until(lambda: _answers(gap), bool, 60), (gap.folder / "dockerd.log").read_text()[-3000:]
            yield
        finally:
            engine.terminate()
            engine.wait(60)


def _resolvers() -> list[str]:
    """Returns the addresses of this machine's resolvers, without loopback addresses.

    The requested names show what a program wants; dropped packets to a resolver would not.
    """
    named = re.findall(r"^nameserver\s+([\d.]+)\s*$", Path("/etc/resolv.conf").read_text(), re.MULTILINE)
    return [each for each in dict.fromkeys(named) if not each.startswith("127.")]


def _answers(gap: Airgap) -> bool:
    done = subprocess.run(
        gap.command("docker", "version"), env=gap.environment, capture_output=True, check=False
    )
    return done.returncode == 0


def _remove() -> None:
    for words in (f"netns delete {NAMESPACE}", "link delete rs-world"):
        with contextlib.suppress(subprocess.CalledProcessError):
            _ip(words)


def _ip(words: str) -> None:
    subprocess.run(["ip", *words.split()], check=True, capture_output=True)
