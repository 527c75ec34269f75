"""Tests the way from nothing to a task that is debugged, and back, by the verbs that a user types."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import requests

from bootstrap.settings import ROOT
from rayside.errors import NotRunning
from tests.at_once import AT_ONCE
from tests.integration.conftest import Rayside, of_each
from tests.integration.listeners import FREE, listeners
from tests.patience import PATIENCE

pytestmark = pytest.mark.gate

EXAMPLE = ROOT / "example" / "working_dir" / "sample_code.py"


def line_of(text: str) -> int:
    """Returns the number of the example's line that contains `text`."""
    return next(n for n, line in enumerate(EXAMPLE.read_text().splitlines(), 1) if text in line)


def head_and_jobs(up: Rayside) -> tuple[str, list[str]]:
    """Returns what `up` makes and would not make twice: the head's process, and the jobs."""
    record = (up.folder / "ray.json").read_text()
    return record, [job.submission_id for job in up.target.access.require().jobs()]


@pytest.fixture(scope="module")
def up(rayside: Rayside) -> Rayside:
    done = rayside.run("up", "--target", "local")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "The example is paused in its task estimate. Next: ./invokew debug" in done.stdout
    assert "critical path" in done.stdout
    token = (rayside.folder / "token").read_text()
    assert token not in done.stdout + done.stderr
    return rayside


def test_status_is_ready_with_steps_urls_and_timing(up: Rayside) -> None:
    status = up.settled_status()
    assert status["ready"] is True
    assert (status["target"], status["source"]) == ("local", "packages")
    assert {step["condition"] for step in status["steps"]} == {"ready"}
    relay = f"tcp://127.0.0.1:{up.settings.relay_port}"
    assert status["urls"] == {"workspace": None, "dashboard": up.target.head.url, "relay": relay}
    assert [timing["name"] for timing in status["timing"]][-1] == "example"
    assert all(set(timing) == {"name", "started", "seconds"} for timing in status["timing"])


def test_open_says_that_this_cluster_does_without_a_workspace(up: Rayside) -> None:
    error = up.json("open", code=4)["error"]
    assert error["id"] == "not-running"
    assert error["hint"] == "unset INVOKE_RAYSIDE_WORKSPACE, then ./invokew up"


def test_breakpoints_lists_the_paused_task(up: Rayside) -> None:
    (paused,) = up.json("breakpoints")
    assert set(paused) == {"worker_id", "node_ip", "pid", "job_id", "task", "since"}
    assert paused["task"] == "estimate"
    assert psutil.pid_exists(paused["pid"])


def test_the_package_debugs_it_too_and_leaves_its_making_to_the_clone(up: Rayside) -> None:
    def package(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "rayside.cli", *words]
        return subprocess.run(
            command, cwd=ROOT, env=up.environment, capture_output=True, text=True, check=False
        )

    assert json.loads(package("breakpoints", "--json").stdout) == up.json("breakpoints")
    status = json.loads(package("status", "--json").stdout)
    assert (status["target"], status["ready"]) == ("local", True)
    for verb in ("connect", "disconnect"):
        done = package(verb)
        assert (done.returncode, "made in a clone of Rayside" in done.stderr) == (2, True), done.stderr


def test_a_second_up_changes_nothing_and_says_so(up: Rayside) -> None:
    before = head_and_jobs(up)
    done = up.run("up")
    assert done.returncode == 0
    assert "Nothing to change: all 11 steps were ready" in done.stdout
    assert head_and_jobs(up) == before


def test_a_setting_that_differs_from_what_runs_is_drift_and_nothing_is_touched(up: Rayside) -> None:
    before = head_and_jobs(up)
    done = up.run("up", env={"INVOKE_RAYSIDE_RAY_CPUS": "3"})
    assert done.returncode == 4
    assert "error[drifted]" in done.stderr
    assert "ray_cpus is 2, the settings say 3" in done.stderr
    prepared = up.run("prepare", env={"INVOKE_RAYSIDE_RAY_CPUS": "3"})
    assert prepared.returncode == 0
    assert "stays so: ray_cpus is 2, the settings say 3" in prepared.stdout
    assert "Next: ./invokew down, then ./invokew up" in prepared.stdout
    assert head_and_jobs(up) == before
    assert "Next: ./invokew up\n" in up.run("prepare").stdout


def test_ray_asks_for_the_token(up: Rayside) -> None:
    assert requests.get(f"{up.target.head.url}/api/jobs/", timeout=PATIENCE).status_code == 401


# Ray binds these to all interfaces, and does not let one change that.
EVERYWHERE = ("*", FREE)
# For Prometheus, at ports that one Ray of a machine has: here, or another Ray's and not here.
METRICS = {"monitor.py": ("*", "44217"), "dashboard.py": ("*", "44227")}


def test_nothing_listens_but_what_the_docs_name_and_where(up: Rayside) -> None:
    (paused,) = up.target.access.require().waiting()
    names = {getattr(up.settings, name): name for name in ("dashboard_port", "ray_client_port", "relay_port")}
    by_program = listeners(
        up.settings.state_folder, {**names, paused.port: "debugger", 44217: "44217", 44227: "44227"}
    )
    for program, metrics in METRICS.items():
        alone = {
            tuple(listener for listener in listeners_ if listener != metrics)
            for listeners_ in by_program.pop(program, set())
        } - {()}
        by_program |= {program: alone} if alone else {}
    # Workers that wait for a task: as many as Ray sees fit, or none.
    assert by_program.pop("ray::IDLE", {(EVERYWHERE,)}) == {(EVERYWHERE,)}
    assert by_program == {
        # Ours, and what holders of the token or a proof get in at: loopback.
        "rayside.relay": {(("127.0.0.1", "relay_port"),)},
        "dashboard.py": {(("127.0.0.1", "dashboard_port"),)},
        "ray.util.client.server": {(("127.0.0.1", "ray_client_port"), ("127.0.0.2", "ray_client_port"))},
        "ray::estimate": {(EVERYWHERE, ("127.0.0.2", "debugger"))},
        # Ray's own.
        "gcs_server": {(EVERYWHERE,)},
        "raylet": {(EVERYWHERE, EVERYWHERE)},
        "ray::RuntimeEnvAgent": {(("127.0.0.2", FREE),)},
        "ray::DashboardAgent": {(*[EVERYWHERE] * 3, ("127.0.0.1", FREE), ("127.0.0.2", FREE))},
        "ray::JobSupervisor": {(EVERYWHERE,)},
        "sample_code.py": {(EVERYWHERE,)},
    }


def test_no_secret_is_in_an_argument(up: Rayside) -> None:
    token = (up.folder / "token").read_text()
    assert all(token not in " ".join(words) for _, words in of_each(up.processes(), psutil.Process.cmdline))
    for name in ("token", "ray.json", "ray.log"):
        assert (up.folder / name).stat().st_mode & 0o077 == 0


def test_debug_answers_file_line_and_value_and_the_job_succeeds(up: Rayside) -> None:
    result = up.json("debug", "--evaluate", "total / points", "--evaluate", "nonsense")
    (stop,) = result["stopped"]
    assert stop["task"] == "estimate"
    assert stop["file"] == str(EXAMPLE)
    assert stop["line"] in (line_of("breakpoint()"), line_of("breakpoint()") + 1)
    assert stop["function"] == "estimate"
    assert stop["locals"]["points"] == "400000"
    assert float(stop["evaluated"]["total / points"]) == pytest.approx(0.785, abs=0.01)
    assert "NameError" in stop["evaluated"]["nonsense"]
    assert result["job"] == {"submission_id": "rayside-example-1", "status": "SUCCEEDED"}
    assert up.json("breakpoints") == []


def test_up_after_the_example_was_debugged_changes_nothing(up: Rayside) -> None:
    done = up.run("up")
    assert "Nothing to change" in done.stdout


def test_logs_shows_the_result_of_the_example(up: Rayside) -> None:
    assert "pi is about 3.1" in up.run("logs").stdout
    assert "pi is about 3.1" in up.run("logs", "--follow", "--job", "rayside-example-1").stdout
    assert "Ray runtime started" in up.run("logs", "--ray").stdout


@pytest.mark.parametrize("part", ["raylet", "gcs_server", "ray"])
def test_up_mends_a_ray_that_was_killed(up: Rayside, part: str) -> None:
    victims = up.named(part)
    victims[0].kill()
    done = up.run("up", "--no-example")
    assert done.returncode == 0, done.stdout + done.stderr
    assert up.is_ready()
    assert not any(victim.is_running() for victim in victims)


def test_up_replaces_a_ray_that_nobody_recorded(up: Rayside) -> None:
    (up.folder / "ray.json").unlink()
    before = {process.pid for process in up.processes()}
    assert "leftovers" in str(up.json("doctor", code=3)["findings"])
    done = up.run("up", "--no-example")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not before & {process.pid for process in up.processes()}


def test_a_ray_that_died_is_an_error_that_says_so(up: Rayside) -> None:
    (head,) = up.named("ray")
    of_each(up.processes(), psutil.Process.kill)
    psutil.wait_procs([head], timeout=PATIENCE)
    error = up.json("submit", code=4)["error"]
    assert error["id"] == "ray-died"
    assert error["hint"] == "./invokew up starts it again"
    assert up.json("status")["ready"] is False


def test_a_taken_port_is_named_with_who_has_it_and_what_to_set(rayside: Rayside) -> None:
    assert rayside.run("down").returncode == 0
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", rayside.settings.dashboard_port))
        holder.listen()
        done = rayside.run("up", "--no-example")
    assert done.returncode == 3
    assert f"(pid {os.getpid()})" in done.stderr
    assert f"INVOKE_RAYSIDE_DASHBOARD_PORT={rayside.settings.dashboard_port + 1}" in done.stderr
    assert not rayside.settings.state_folder.exists()


@pytest.mark.parametrize(
    ("setting", "identity"),
    [("INVOKE_RAYSIDE_MIN_MEMORY_GIB", "low-memory"), ("INVOKE_RAYSIDE_MIN_DISK_GIB", "low-disk")],
)
def test_too_little_room_is_said_before_anything_starts(
    rayside: Rayside, setting: str, identity: str
) -> None:
    assert rayside.run("down").returncode == 0
    done = rayside.run("up", env={setting: "100000"})
    assert done.returncode == 3
    assert f"error[{identity}]" in done.stderr
    assert not rayside.settings.state_folder.exists()


def test_ctrl_c_ends_up_within_two_seconds_and_up_goes_on(rayside: Rayside) -> None:
    with rayside.start("up", "--no-example") as running:
        assert running.stdout
        for line in running.stdout:
            if re.match(r"Ray [\d.]+: ", line):
                break
        began = time.monotonic()
        running.send_signal(signal.SIGINT)
        rest = running.stdout.read()
        assert running.wait(10) == 130
        assert time.monotonic() - began < AT_ONCE
    assert "error[interrupted]" in rest
    assert rayside.run("up", "--no-example").returncode == 0
    assert rayside.is_ready()


def test_two_ups_at_once_make_one_ray(rayside: Rayside) -> None:
    assert rayside.run("down").returncode == 0
    with rayside.start("up", "--no-example") as first, rayside.start("up", "--no-example") as second:
        outputs = [process.communicate(timeout=120)[0] for process in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0], outputs
    assert sorted("Nothing to change" in text for text in outputs) == [False, True]
    assert sum("Another up or down is at work: waiting" in text for text in outputs) == 1
    assert len(rayside.named("raylet")) == 1


def strays() -> set[Path]:
    """Returns what Ray is known to leave in the system's temporary folder."""
    return {path for name in ("ray", "pymp-*") for path in Path("/tmp").glob(name)}


def test_down_leaves_nothing_and_may_be_repeated(rayside: Rayside) -> None:
    assert rayside.run("down").returncode == 0
    before = strays()
    assert rayside.run("up", "--no-example").returncode == 0
    assert strays() == before
    for _ in range(2):
        done = rayside.run("down")
        assert done.returncode == 0, done.stdout + done.stderr
        assert rayside.processes() == []
        assert not rayside.settings.state_folder.exists()
        assert strays() == before
    with pytest.raises(NotRunning):
        rayside.target.access.require()
    assert rayside.json("breakpoints", code=4)["error"]["id"] == "not-running"
