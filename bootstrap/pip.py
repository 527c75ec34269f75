"""Installs what a lock file names, by its hashes and nothing else: with uv, or pip where there is no uv."""

from __future__ import annotations

import ast
import os
import platform
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bootstrap.errors import BadBundle, BadChecksum, NoNetwork
from rayside.errors import CommandFailed, RaysideError
from rayside.plain import plain
from rayside.system.shell import Shell
from rayside.worker.redaction import Redactor

_LACKING = ("No matching distribution", "No solution found")
# pip's words, then uv's. pip ends with the package, as if the index that it can't reach lacked it.
_UNREACHABLE = (
    *("NewConnectionError", "Max retries", "ReadTimeout", "ConnectTimeout", "Read timed out"),
    *("Failed to fetch", "error sending request", "network timeout", "error decoding response body"),
)
_MISMATCH = ("DO NOT MATCH THE HASHES", "Hash mismatch for")
# Both name all hashes of a package, of which one would do.
_EXPECTED = re.compile(r"\s*(?:Expected\s+or\s+|sha256:)[0-9a-f]{64}")


class NotAtIndex(NoNetwork):
    """The index answers, and has no such package for this Python and this system."""


# An error has so many lines of what the two say, and so many characters of each; of longer ones the rest is
# not looked at.
_MOST_LINES, _LONGEST, _READ = 20, 400, 4000

# These are the tags of wheels for any Linux with glibc of this century, in the words of PEP 600 and of those
# before it, the oldest first: what runs on the most systems is taken. pip knows of none that it is not told.
_OLDEST_GLIBC, _NEWEST_GLIBC = 5, 40
_MANYLINUX = (
    *("1", "2010", "2014"),
    *(f"_2_{minor}" for minor in range(_OLDEST_GLIBC, _NEWEST_GLIBC + 1)),
)
_MACHINES = {"arm64": "aarch64", "amd64": "x86_64", "AMD64": "x86_64"}

# What leads pip to packages, or lets it reach them. Others, as target and user, are for what its user
# installs.
_REACHING = (
    *("index-url", "extra-index-url", "find-links", "no-index"),
    *("trusted-host", "proxy", "cert", "client-cert", "keyring-provider", "use-feature"),
    *("timeout", "default-timeout", "retries", "cache-dir", "no-cache-dir"),
)
# Settings of pip, and of uv, that have the same values.
_SAME = {
    "PIP_INDEX_URL": "UV_DEFAULT_INDEX",
    "PIP_EXTRA_INDEX_URL": "UV_INDEX",
    "PIP_TRUSTED_HOST": "UV_INSECURE_HOST",
    "PIP_CLIENT_CERT": "SSL_CLIENT_CERT",
    "PIP_DEFAULT_TIMEOUT": "UV_HTTP_TIMEOUT",
    "PIP_TIMEOUT": "UV_HTTP_TIMEOUT",
    "PIP_RETRIES": "UV_HTTP_RETRIES",
}
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
# What `pip config list` printed, by what leads it to its files.
_listed: dict[tuple[str | None, ...], str] = {}


def for_linux(python: str, architecture: str = "") -> list[str]:
    """Returns the options for wheels of a Linux with that Python, as 3.11.

    `architecture`: of its processor, as images call it; default: this machine's.
    """
    machine = _machine(architecture)
    platforms = [word for tag in _MANYLINUX for word in ("--platform", f"manylinux{tag}_{machine}")]
    return ["--python-version", python, *platforms]


def _machine(architecture: str) -> str:
    """Returns what Linux calls a processor."""
    machine = architecture or platform.machine()
    return _MACHINES.get(machine, machine)


def uv_of(python: str | Path) -> Path | None:
    """Returns the uv beside a Python; None where that environment has none."""
    program = Path(python).with_name("uv")
    return program if program.exists() else None


def install(
    shell: Shell,
    python: str | Path,
    lock_file: Path,
    options: Sequence[str | Path] = (),
    *,
    wheels: Path | None = None,
    kept: Path | None = None,
    tools: str | Path = sys.executable,
    env: Mapping[str, str] = os.environ,
    report: Callable[[str], None] = lambda _: None,
) -> None:
    """Installs into the environment of `python`, or into another place that `options` name.

    uv does, where there is one, and else the pip of `python`. With `--platform` among the options pip does,
    too: of the wheels for an older and a newer Linux it takes the one that is named first.

    Args:
        wheels: a folder that has all of it, where no index is to be asked.
        kept: a folder for what uv has fetched; the caller removes it. Without it nothing is kept.
        tools: the Python beside which uv is.

    Raises NoNetwork where the index can't be reached, BadChecksum, BadBundle, else CommandFailed.
    """
    origin: list[str | Path] = ["--no-index", "--find-links", wheels] if wheels else []
    uv = uv_of(tools)
    told = for_pip(shell, tools if uv else python, env)
    if uv is None or "--platform" in options:
        _pip(shell, python, "install", lock_file, [*origin, *options], told, report)
        return
    # It takes no such variable.
    if not wheels and told.get("PIP_NO_INDEX", "").lower() in ("1", "true", "yes", "on", "y", "t"):
        origin = ["--no-index"]
    command: list[str | Path] = [uv, "pip", "install", "--python", python]
    command += ["--color", "never", "--no-progress"]
    _run(shell, command, lock_file, [*origin, *options], for_uv(told, kept), report)


def download(
    shell: Shell,
    lock_file: Path,
    folder: Path,
    python: str,
    architecture: str = "",
    *,
    env: Mapping[str, str] = os.environ,
    report: Callable[[str], None] = lambda _: None,
) -> None:
    """Downloads the wheels for a Linux with that Python, as 3.11, into a folder, which uv can't.

    `architecture` is that of `for_linux`. Raises as `install`.
    """
    with tempfile.TemporaryDirectory() as name:
        lock_there = Path(name, lock_file.name)
        lock_there.write_text(for_python(lock_file.read_text(), python, architecture))
        options: list[str | Path] = ["--dest", folder, *for_linux(python, architecture)]
        told = for_pip(shell, sys.executable, env)
        _pip(shell, sys.executable, "download", lock_there, options, told, report)


def for_python(locked: str, python: str, architecture: str = "") -> str:
    """Returns what a lock file has for a Linux with that Python, as 3.11, without conditions.

    `architecture` is that of `for_linux`.

    pip itself asks the Python that it runs on whether a condition holds
    (https://packaging.python.org/en/latest/specifications/dependency-specifiers/#environment-markers).
    """
    # Not at the top: seldom used, and not there yet when .venv is made.
    from packaging.markers import Marker

    there = {"python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux"}
    there |= {"platform_system": "Linux", "os_name": "posix", "platform_machine": _machine(architecture)}
    kept: list[str] = []
    holds = True
    for line in locked.splitlines():
        if line[:1].strip() and not line.startswith("#"):
            requirement, condition, marker = line.partition(";")
            holds = not condition or Marker(marker.strip().removesuffix("\\")).evaluate(there)
            line = f"{requirement.strip()} \\" if condition else line
        if holds:
            kept.append(line)
    return "\n".join(kept) + "\n"


def for_pip(shell: Shell, python: str | Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment for pip in which only those of its user's settings count that lead to packages.

    They are those of its configuration files, too, which it reads once. Raises CommandFailed.
    """
    names = ("PIP_CONFIG_FILE", "HOME", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS")
    files = tuple(map(environment.get, names))
    if files not in _listed:
        # With -v it prints also where its configuration has it quiet.
        # -I: by -m alone, Python would take a pip.py of the current folder.
        command = [python, "-I", "-m", "pip", "config", "list", "-v"]
        try:
            _listed[files] = shell.run(command, env=_reaching(environment)).out
        except CommandFailed:
            # What it says may quote a line with a password.
            raise CommandFailed(
                f"pip can't read its configuration: {python} -m pip config list fails",
                hint="run that, and correct the file that it names",
            ) from None
    return configured(environment, _listed[files])


def _reaching(environment: Mapping[str, str]) -> dict[str, str]:
    kept = {*map(_variable, _REACHING), "PIP_CONFIG_FILE"}
    return {key: value for key, value in environment.items() if not key.startswith("PIP_") or key in kept}


def _variable(option: str) -> str:
    return f"PIP_{option.upper().replace('-', '_')}"


def configured(environment: Mapping[str, str], listed: str) -> dict[str, str]:
    """Returns that environment, from what `pip config list` prints: `global.index-url='https://...'`."""
    values = dict(line.split("=", 1) for line in listed.splitlines() if "=" in line)
    found = _reaching(environment)
    for option in _REACHING:
        variable = _variable(option)
        # The strongest first (https://pip.pypa.io/en/stable/topics/configuration/#precedence-override-order).
        for key in (f"install.{option}", f"global.{option}"):
            if variable not in found and key in values:
                found[variable] = " ".join(str(ast.literal_eval(values[key])).split())
    if "PIP_FIND_LINKS" not in found:  # An index that is off, with nothing in its place, has no packages.
        found.pop("PIP_NO_INDEX", None)
    return {**found, "PIP_CONFIG_FILE": os.devnull}


def for_uv(pips: Mapping[str, str], kept: Path | None = None) -> dict[str, str]:
    """Returns the environment in which uv reaches what pip reaches in `pips`, which `configured` returned.

    Nothing else that uv is told counts: no variable of its own, and no file. `kept` is that of `install`.
    """
    env = {key: value for key, value in pips.items() if not key.startswith(("PIP_", "UV_"))}
    env |= {theirs: pips[name] for name, theirs in _SAME.items() if name in pips}
    if "PIP_FIND_LINKS" in pips:
        env["UV_FIND_LINKS"] = ",".join(pips["PIP_FIND_LINKS"].split())
    if "PIP_PROXY" in pips:
        # It is stronger than the environment's, whichever the host.
        env = {key: value for key, value in env.items() if key.upper() not in _PROXIES}
        env |= {"HTTP_PROXY": pips["PIP_PROXY"], "HTTPS_PROXY": pips["PIP_PROXY"]}
    # In the library that pip has these variables win over pip's own setting.
    names = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT")
    if trusted := next((pips[name] for name in names if pips.get(name)), ""):
        path = Path(trusted).expanduser()
        env["SSL_CERT_DIR" if path.is_dir() else "SSL_CERT_FILE"] = str(path)
    # Without a prompt pip asks a keyring only where it is told which.
    if pips.get("PIP_KEYRING_PROVIDER") == "subprocess":
        env["UV_KEYRING_PROVIDER"] = "subprocess"
    # What it has in its cache it links: who changes a file of an environment would change it for later ones.
    env |= {"UV_CACHE_DIR": str(kept)} if kept else {"UV_NO_CACHE": "1"}
    # Python keeps the bytecode of what it imports, a small part of it all. One that is told to keep none
    # would compile Ray in each of its processes.
    if pips.get("PYTHONDONTWRITEBYTECODE"):
        env["UV_COMPILE_BYTECODE"] = "1"
    # By the hashes any index will do, as for pip; and pip trusts what the system does.
    return {**env, "UV_INDEX_STRATEGY": "unsafe-best-match", "UV_SYSTEM_CERTS": "1", "UV_NO_CONFIG": "1"}


def _pip(
    shell: Shell,
    python: str | Path,
    verb: str,
    lock_file: Path,
    options: Sequence[str | Path],
    env: Mapping[str, str],
    report: Callable[[str], None],
) -> None:
    quiet = ["--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
    _run(shell, [python, "-I", "-m", "pip", verb, *quiet], lock_file, options, env, report)


def _run(
    shell: Shell,
    command: Sequence[str | Path],
    lock_file: Path,
    options: Sequence[str | Path],
    env: Mapping[str, str],
    report: Callable[[str], None],
) -> None:
    lines: list[str] = []

    def on_line(line: str) -> None:
        line = line[:_READ]
        if line.strip() and not _EXPECTED.fullmatch(line):
            lines.append(line)
        if line.startswith(("Collecting ", "Installing ", "Downloading ", "Resolved ", "Prepared ")):
            report(plain(" ".join(line.partition(" (from ")[0].split()[:3])))

    # The lock is the whole closure: nothing to resolve. It takes wheels alone, as what builds a source
    # package would be fetched without a hash, and run.
    exact = ["--no-deps", "--require-hashes", "--only-binary", ":all:"]
    whole = [*command, *exact, *options, "--requirement", lock_file]
    try:
        shell.run(whole, env=env, on_line=on_line)
    except CommandFailed as error:
        first = error.message.splitlines()[:2]
        raise _explained(
            [*first, *lines[-_MOST_LINES:]], lock_file, is_bundle="--find-links" in options
        ) from None


def _explained(lines: Sequence[str], lock_file: Path, *, is_bundle: bool) -> RaysideError:
    """Returns the error that the output of pip or uv means."""
    redactor = Redactor([])
    said = "\n".join(plain(redactor.text(line))[:_LONGEST] for line in lines)
    last = said.splitlines()[-1].strip().removeprefix("ERROR: ").removeprefix("cause: ")
    if any(sign in said for sign in _MISMATCH):
        return BadChecksum(
            f"a download is not what {lock_file.name} names:\n{said}",
            hint="ask who runs the package mirror (pip config list); nothing was installed from it",
        )
    if is_bundle and any(sign in said for sign in _LACKING):
        return BadBundle(
            f"the bundle lacks a package that {lock_file.name} names, for this Python and this system:\n"
            f"{said}",
            hint="make it anew, on a system like this one: ./invokew bundle FILE",
        )
    hint = "connect, or set pip's index-url and proxy (pip config), and run it again"
    of = f"what {lock_file.name} names: {last}"
    if any(sign in said for sign in _UNREACHABLE):
        return NoNetwork(f"the Python package index could not be reached, for {of}", hint=hint)
    if any(sign in said for sign in _LACKING):
        return NotAtIndex(f"the Python package index lacks, for this Python and this system, {of}", hint=hint)
    return CommandFailed(said, hint="correct what it names, and run it again")
