"""Starts a small Ray with --ray-debugger-external, and says where pdb listens there.

That pdb asks nobody for anything. So this Ray has a network of its own, with nothing but a loopback
interface (Linux namespaces): no other machine reaches it, nor does another program of this one. All of it
ends with this program.
"""

import fcntl
import os
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

OWN_NETWORK = ["unshare", "--map-root-user", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]
NO_NETWORK = 3
NODE = "127.0.0.2"
SIOCSIFFLAGS, IFF_UP, LISTENS = 0x8914, 1, "0A"


def main() -> int:
    """Runs `inside` in a network of its own; returns the exit code."""
    try:
        probe = subprocess.run([*OWN_NETWORK, "true"], capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        print(f"this machine has no unshare, which Linux has: {error}")
        return NO_NETWORK
    if probe.returncode:
        print(f"this machine lets its user make no network: {probe.stderr.strip()}")
        return NO_NETWORK
    # Ray's sockets need a short path.
    with tempfile.TemporaryDirectory(prefix="lab-07-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        return subprocess.run([*OWN_NETWORK, sys.executable, __file__, folder], check=False).returncode


def inside(folder: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))
    # A job's Ray would be the cluster's, and its files would be looked for there.
    for name in ("RAY_ADDRESS", "RAY_JOB_CONFIG_JSON_ENV_VAR"):
        os.environ.pop(name, None)
    os.environ["RAY_DEBUG"] = "legacy"
    options = ["--include-dashboard=false", "--disable-usage-stats", "--num-cpus=1"]
    place = [f"--node-ip-address={NODE}", f"--temp-dir={folder}", "--object-store-memory=80000000"]
    start = ["ray", "start", "--head", "--ray-debugger-external", *options, *place]
    started = subprocess.run(start, capture_output=True, text=True, check=False)
    if started.returncode:
        raise SystemExit(started.stdout + started.stderr)

    import ray
    import waiting

    @ray.remote
    def stop() -> None:
        breakpoint()

    ray.init(address=f"{NODE}:6379", log_to_driver=False)
    task = stop.remote()
    address = waiting.newest()["pdb_address"]
    host, _, port = address.rpartition(":")
    print(f"ray debug would connect to {host}")
    print(f"pdb listens at {listener(int(port))}")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        print(f"whoever connects there sees: {waiting.until_prompt(connection)}")
        connection.sendall(b"c\n")
    ray.get(task)


def listener(port: int) -> str:
    """Returns the address at which a process of this network listens on that port; 0.0.0.0 is all of them."""
    for row in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, _, state, *_ = row.split()
        address, _, number = local.partition(":")
        if state == LISTENS and int(number, 16) == port:
            return socket.inet_ntoa(struct.pack("=I", int(address, 16)))
    raise SystemExit(f"nobody listens on port {port}")


if __name__ == "__main__":
    if sys.argv[1:]:
        inside(sys.argv[1])
    else:
        sys.exit(main())
