"""Installation of a lock file's packages, verified by hashes: with uv, or with pip if there is no uv."""

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
# pip's messages, then uv's. If pip can't reach the index, its last line says that the package is missing.
_UNREACHABLE = (
    *("NewConnectionError", "Max retries", "ReadTimeout", "ConnectTimeout", "Read timed out"),
    *("Failed to fetch", "error sending request", "network timeout", "error decoding response body"),
)
_MISMATCH = ("DO NOT MATCH THE HASHES", "Hash mismatch for")
# pip and uv list all accepted hashes of a package.
_EXPECTED = re.compile(r"\s*(?:Expected\s+or\s+|sha256:)[0-9a-f]{64}")


class NotAtIndex(NoNetwork):
    """The index responds, but lacks the package for this Python and system."""


# Limits of pip's and uv's output: lines in an error, characters of each, and characters that are read of a
# line.
_MOST_LINES, _LONGEST, _READ = 20, 400, 4000

# Wheel tags for any Linux with a glibc of this century, by PEP 600 and its predecessors, the oldest first:
# the wheel that runs on the most systems is taken. pip accepts only the tags that it is given.
_OLDEST_GLIBC, _NEWEST_GLIBC = 5, 40
_MANYLINUX = (
    *("1", "2010", "2014"),
    *(f"_2_{minor}" for minor in range(_OLDEST_GLIBC, _NEWEST_GLIBC + 1)),
)
_MACHINES = {"arm64": "aarch64", "amd64": "x86_64", "AMD64": "x86_64"}

# pip's options to find packages or to connect to an index. Others, such as target and user, are for the
# user's own installations.
_REACHING = (
    *("index-url", "extra-index-url", "find-links", "no-index"),
    *("trusted-host", "proxy", "cert", "client-cert", "keyring-provider", "use-feature"),
    *("timeout", "default-timeout", "retries", "cache-dir", "no-cache-dir"),
)
# pip's variables, and uv's variables with the same values.
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
# Output of `pip config list`, by the variables that locate pip's configuration files.
_listed: dict[tuple[str | None, ...], str] = {}


def for_linux(python: str, architecture: str = "") -> list[str]:
    """Returns pip's options for Linux wheels of that Python version, as 3.11.

    `architecture`: of the processor, as images name it; default: this machine's.
    """
    machine = _machine(architecture)
    platforms = [word for tag in _MANYLINUX for word in ("--platform", f"manylinux{tag}_{machine}")]
    return ["--python-version", python, *platforms]


def _machine(architecture: str) -> str:
    """Returns Linux's name of a processor architecture."""
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
    """Installs into the environment of `python`, or into another location that `options` name.

    It uses uv if there is one, else the pip of `python`. With `--platform` in the options it always uses
    pip: of the wheels for an older and a newer Linux, that takes the one whose platform comes first.

    Args:
        wheels: a folder of all wheels, to be used instead of an index.
        kept: uv's cache folder, which the caller removes; None for no cache.
        tools: the Python whose environment has uv.

    Raises NoNetwork if the index can't be reached, BadChecksum, BadBundle, else CommandFailed.
    """
    origin: list[str | Path] = ["--no-index", "--find-links", wheels] if wheels else []
    uv = uv_of(tools)
    told = for_pip(shell, tools if uv else python, env)
    if uv is None or "--platform" in options:
        _pip(shell, python, "install", lock_file, [*origin, *options], told, report)
        return
    # uv has no variable for --no-index.
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
    """Downloads the Linux wheels for that Python version, as 3.11, into a folder; uv can't.

    `architecture` as in `for_linux`. Raises as `install`.
    """
    with tempfile.TemporaryDirectory() as name:
        lock_there = Path(name, lock_file.name)
        lock_there.write_text(for_python(lock_file.read_text(), python, architecture))
        options: list[str | Path] = ["--dest", folder, *for_linux(python, architecture)]
        told = for_pip(shell, sys.executable, env)
        _pip(shell, sys.executable, "download", lock_there, options, told, report)


def for_python(locked: str, python: str, architecture: str = "") -> str:
    """Returns a lock file's requirements for Linux and that Python version, as 3.11, without markers.

    `architecture` as in `for_linux`.
    pip itself evaluates markers for the Python that it runs on
    (https://packaging.python.org/en/latest/specifications/dependency-specifiers/#environment-markers).
    """
    # Not at the top: seldom used, and not yet installed while .venv is set up.
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
    """Returns pip's environment with only those of the user's settings that find and reach packages.

    Settings in pip's configuration files, which are read once, count too. Raises CommandFailed.
    """
    names = ("PIP_CONFIG_FILE", "HOME", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS")
    files = tuple(map(environment.get, names))
    if files not in _listed:
        # -v: pip prints even if its configuration sets `quiet`.
        # -I: with -m alone, Python would import a pip.py from the current folder.
        command = [python, "-I", "-m", "pip", "config", "list", "-v"]
        try:
            _listed[files] = shell.run(command, env=_reaching(environment)).out
        except CommandFailed:
            # pip's message may quote a line with a password.
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
    """Returns that environment, from the output of `pip config list`: `global.index-url='https://...'`."""
    values = dict(line.split("=", 1) for line in listed.splitlines() if "=" in line)
    found = _reaching(environment)
    for option in _REACHING:
        variable = _variable(option)
        # The strongest first (https://pip.pypa.io/en/stable/topics/configuration/#precedence-override-order).
        for key in (f"install.{option}", f"global.{option}"):
            if variable not in found and key in values:
                found[variable] = " ".join(str(ast.literal_eval(values[key])).split())
    if "PIP_FIND_LINKS" not in found:  # No index and no other source means no packages.
        found.pop("PIP_NO_INDEX", None)
    return {**found, "PIP_CONFIG_FILE": os.devnull}


def for_uv(pips: Mapping[str, str], kept: Path | None = None) -> dict[str, str]:
    """Returns the environment in which uv reaches the same packages as pip in `pips`, from `configured`.

    uv's own variables and configuration files are ignored. `kept` as in `install`.
    """
    env = {key: value for key, value in pips.items() if not key.startswith(("PIP_", "UV_"))}
    env |= {theirs: pips[name] for name, theirs in _SAME.items() if name in pips}
    if "PIP_FIND_LINKS" in pips:
        env["UV_FIND_LINKS"] = ",".join(pips["PIP_FIND_LINKS"].split())
    if "PIP_PROXY" in pips:
        # pip's proxy setting overrides the environment's for every host.
        env = {key: value for key, value in env.items() if key.upper() not in _PROXIES}
        env |= {"HTTP_PROXY": pips["PIP_PROXY"], "HTTPS_PROXY": pips["PIP_PROXY"]}
    # In pip's HTTP library these variables override pip's own setting.
    names = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT")
    if trusted := next((pips[name] for name in names if pips.get(name)), ""):
        path = Path(trusted).expanduser()
        env["SSL_CERT_DIR" if path.is_dir() else "SSL_CERT_FILE"] = str(path)
    # Without a prompt pip uses a keyring only if its provider is set.
    if pips.get("PIP_KEYRING_PROVIDER") == "subprocess":
        env["UV_KEYRING_PROVIDER"] = "subprocess"
    # uv links files from its cache: a change to a file of one environment would change later ones.
    env |= {"UV_CACHE_DIR": str(kept)} if kept else {"UV_NO_CACHE": "1"}
    # Python writes the bytecode of imported modules, a small part of it all. With PYTHONDONTWRITEBYTECODE
    # each process would compile Ray again.
    if pips.get("PYTHONDONTWRITEBYTECODE"):
        env["UV_COMPILE_BYTECODE"] = "1"
    # With hashes any index is safe, as for pip; and pip trusts the system's CAs.
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

    # The lock file is complete: nothing to resolve. Only wheels, as the build dependencies of a source
    # package would be downloaded without a hash, and run.
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
