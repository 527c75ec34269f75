"""Wrapper of the OCI runtime runc, which drops capabilities that this machine does not have.

Docker 20.10 gives a privileged container every capability it knows. If one of them is missing in the
bounding set, as in a sandbox, runc fails with "unable to apply caps". This program, installed by
engine.py as a separate executable (so: standard library only), removes the missing ones from the
container's configuration, and executes runc.

Sources: https://github.com/opencontainers/runtime-spec/blob/main/config.md#linux-process for the
files, linux/capability.h for the numbers.
"""

import json
import os
import re
import sys
from pathlib import Path

# Capabilities in the order of their numbers.
_ORDER = (
    "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE "
    "NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO "
    "SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME "
    "SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG "
    "WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE"
)
NAMES = tuple(f"CAP_{name}" for name in _ORDER.split())


def bounding_set(status: str) -> set[str]:
    """Returns the names, as in CAP_CHOWN, in the bounding set of a /proc/PID/status."""
    capabilities = re.search(r"^CapBnd:\s*([0-9a-f]+)$", status, re.MULTILINE)
    bits = int(capabilities[1], 16) if capabilities else 0
    return {name for number, name in enumerate(NAMES) if bits >> number & 1}


def is_needed() -> bool:
    """Returns whether this machine lacks a capability that its kernel knows."""
    try:
        last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
        allowed = bounding_set(Path("/proc/self/status").read_text())
    except OSError:  # Not Linux.
        return False
    return not allowed.issuperset(NAMES[: last + 1])


def bounded(process: dict[str, object], allowed: set[str]) -> dict[str, object]:
    """Returns an OCI process description with only the allowed capabilities in its sets."""
    sets = process.get("capabilities")
    if not isinstance(sets, dict):
        return process
    kept = {kind: [name for name in names if name in allowed] for kind, names in sets.items()}
    return {**process, "capabilities": kept}


def rewrite(arguments: list[str], allowed: set[str]) -> None:
    """Bounds the capabilities in runc's input file: a bundle's config.json, or the process of an exec."""
    bundle, process = value_of(arguments, "--bundle", "-b"), value_of(arguments, "--process", "-p")
    if "exec" in arguments and process:
        file = Path(process)
        file.write_text(json.dumps(bounded(json.loads(file.read_text()), allowed)))
    elif ("create" in arguments or "run" in arguments) and bundle:
        file = Path(bundle, "config.json")
        config = json.loads(file.read_text())
        file.write_text(json.dumps({**config, "process": bounded(config["process"], allowed)}))


def value_of(arguments: list[str], *names: str) -> str | None:
    """Returns the value of an option, in either of its forms: `--name value` and `--name=value`."""
    for place, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name in names:
            return value if equals else (arguments[place + 1] if place + 1 < len(arguments) else None)
    return None


def main() -> None:
    """Bounds the capabilities, and executes runc."""
    rewrite(sys.argv[1:], bounding_set(Path("/proc/self/status").read_text()))
    os.execvp("runc", ["runc", *sys.argv[1:]])


if __name__ == "__main__":
    main()
