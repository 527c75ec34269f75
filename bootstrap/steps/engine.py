"""Docker engine for kind's node: found, or installed and started if permitted.

It belongs to the machine, not to the cluster: `doctor --fix` installs it, `down` leaves it.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil

from bootstrap import docker_engine
from bootstrap.codespaces import Codespace
from bootstrap.errors import EngineNotPermitted, EngineNotRunning
from rayside.errors import MissingProgram
from rayside.steps.step import Report, Status, missing, pending, ready
from rayside.system.shell import Shell

# pid files of a killed dockerd; if another process has the pid, dockerd thinks that it runs already.
_PID_FILES = {
    Path("/var/run/docker.pid"): "dockerd",
    Path("/var/run/docker/containerd/containerd.pid"): "containerd",
}
_INSTALL = "https://docs.docker.com/engine/install/"


@dataclass(frozen=True)
class Engine:
    """The engine responds. `apply` installs Debian's or Ubuntu's `docker.io`, and starts it."""

    shell: Shell
    # Only `doctor --fix` installs or starts it: it belongs to the machine.
    installs: bool = True
    # Paths of the runtime for machines with fewer capabilities, and of dockerd's log.
    runtime: Path = Path("/usr/local/lib/rayside/runc-bounded")
    log: Path = Path("/var/log/rayside-dockerd.log")
    name: str = "engine"
    title: str = "Docker engine"
    needs: tuple[str, ...] = ()
    patience: float = 60.0
    # Read timeout in seconds of the engine's info; on a busy machine it took over 5.
    silence: float = 20.0

    def check(self) -> Status:
        import docker.errors
        import requests

        try:
            client = docker_engine.new_client(self.silence)
            try:
                info = client.info()
            finally:
                client.close()
        except docker.errors.DockerException as error:
            named = docker_engine.named()
            if "Permission denied" in str(error):
                join = 'sudo usermod -aG docker "$USER", then log in again'
                raise EngineNotPermitted(
                    f"the Docker engine{named} runs, and you may not use it",
                    hint="docker context use NAME (docker context ls), or export DOCKER_HOST"
                    if named
                    else join,
                ) from None
            if not named and any(process.name() == "dockerd" for process in psutil.process_iter(["name"])):
                return pending("dockerd runs and does not answer yet")
            return missing(f"no Docker engine answers{named}")
        except requests.RequestException:
            return pending(f"the Docker engine does not answer within {self.silence:g} s")
        version, driver = info["ServerVersion"], info["Driver"]
        return ready(f"Docker {version}, {driver}, cgroup v{info.get('CgroupVersion', '1')}")

    def apply(self, report: Report) -> None:
        if not self.installs or docker_engine.named():
            where = docker_engine.named()
            hint = "./invokew doctor --fix --target kind starts one, then ./invokew up"
            if where:
                other = "unset DOCKER_HOST" if os.environ.get("DOCKER_HOST") else "docker context use default"
                hint = f"start it, or {other}, then ./invokew up"
            elif Codespace.here():
                hint = "./invokew up --wait-for-engine 120; if that does not help, rebuild the container"
            raise EngineNotRunning(f"no Docker engine answers{where}", hint=hint)
        self._require_permission()
        if not Path("/usr/sbin/dockerd").exists() and not Path("/usr/bin/dockerd").exists():
            from bootstrap.steps import apt

            apt.install(self.shell, report, "docker.io", "iptables")
        report("starting")
        # https://www.freedesktop.org/software/systemd/man/sd_booted.html
        if Path("/run/systemd/system").is_dir():
            self.shell.run(["systemctl", "start", "docker"])
            return
        for file, program in _PID_FILES.items():
            forget_dead(file, program)
        self.shell.spawn(["dockerd", *self.runtime_options()], env=os.environ, log=self.log)

    def runtime_options(self) -> list[str]:
        """Returns dockerd's options for containers on this machine."""
        from bootstrap.steps import bounded_runtime

        if not bounded_runtime.is_needed():
            return []
        source = Path(bounded_runtime.__file__).read_text()
        self.runtime.parent.mkdir(parents=True, exist_ok=True)
        python = Path(sys.base_prefix, "bin", "python3")
        self.runtime.write_text(f"#!{python} -I\n{source}")
        self.runtime.chmod(0o755)
        return ["--add-runtime", f"bounded={self.runtime}", "--default-runtime", "bounded"]

    def _require_permission(self) -> None:
        if platform.system() != "Linux":
            raise EngineNotRunning("no Docker engine answers", hint="start Docker Desktop, or install it")
        if not Path("/etc/debian_version").exists():
            raise EngineNotRunning("no Docker engine answers", hint=f"install and start one: {_INSTALL}")
        if os.geteuid() != 0:
            raise EngineNotRunning(
                "no Docker engine answers, and installing one takes root",
                hint="sudo apt-get install docker.io && sudo systemctl start docker",
            )


@dataclass(frozen=True)
class DockerProgram:
    """The program docker, which kind runs, is on the PATH; it is installed with the engine."""

    name: str = "docker"
    title: str = "the program docker"
    needs: tuple[str, ...] = ("engine",)

    def check(self) -> Status:
        if program := shutil.which("docker"):
            return ready(program)
        raise MissingProgram(
            "the program docker, which kind calls, is not on the PATH",
            hint="./invokew doctor --fix --target kind",
        )


def installable() -> bool:
    """Returns whether `apply` can install an engine: as root on Debian or Ubuntu, if no other is chosen."""
    debian = platform.system() == "Linux" and Path("/etc/debian_version").exists()
    return debian and os.geteuid() == 0 and not docker_engine.named()


def forget_dead(file: Path, program: str) -> None:
    """Removes a pid file unless its process is that program."""
    try:
        if psutil.Process(int(file.read_text())).name() == program:
            return
    except FileNotFoundError:
        return
    except (ValueError, psutil.Error):
        pass
    file.unlink()
