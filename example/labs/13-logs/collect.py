"""Has rsyslogd collect the logs of the newest job, and Ray's own, into collected/ until no more comes."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
COLLECTED = HERE / "collected"
# After so many seconds without another line it has all; after so many in all it gives up.
QUIET, MOST = 2.0, 20.0


def main() -> None:
    logs = Path(answer("logs"))
    names = [re.search(r"-([0-9a-f]{8})-\d+\.err$", file.name) for file in logs.glob("worker-*")]
    # A worker that no job has used has this in place of one.
    jobs = {name[1] for name in names if name} - {"ffffffff"}
    if not jobs:
        sys.exit(f"{logs} has no log of a job's worker: is it what where.py has printed?")
    # It is a number in hexadecimal, its lowest byte first.
    newest = max(jobs, key=lambda job: int.from_bytes(bytes.fromhex(job), "little"))
    shutil.rmtree(COLLECTED, ignore_errors=True)
    COLLECTED.mkdir()
    collect({"@LOGS@": str(logs), "@JOB@": newest, "@COLLECTED@": str(COLLECTED)})
    for name in ("workers.log", "system.log"):
        print(f"job {newest}: {len(lines(COLLECTED / name))} lines in collected/{name}")


def collect(values: dict[str, str]) -> None:
    """Runs rsyslogd with rsyslog.conf, these values put in, until it has read all."""
    text = (HERE / "rsyslog.conf").read_text()
    for name, value in values.items():
        text = text.replace(name, value)
    configuration = COLLECTED / "rsyslog.conf"
    configuration.write_text(text)
    # Debian has it where only root looks for programs.
    program = shutil.which("rsyslogd", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        sys.exit("rsyslogd is not there: sudo apt-get install rsyslog")
    with subprocess.Popen([program, "-n", "-iNONE", "-f", str(configuration)]) as collector:
        began = changed = time.monotonic()
        size = -1
        while collector.poll() is None and time.monotonic() - began < MOST:
            now = sum(file.stat().st_size for file in COLLECTED.glob("*.log"))
            if now != size:
                size, changed = now, time.monotonic()
            elif time.monotonic() - changed > QUIET:
                break
            time.sleep(0.1)
        collector.terminate()


def lines(file: Path) -> list[str]:
    return file.read_text(errors="replace").splitlines() if file.exists() else []


def answer(name: str) -> str:
    """Returns what answers.yaml has behind a name."""
    found = re.search(rf"^{name}:[ \t]*['\"]?([^'\"\n]*)", (HERE / "answers.yaml").read_text(), re.MULTILINE)
    if found is None or not found[1].strip():
        sys.exit(f"write the folder that where.py has printed behind {name}: in answers.yaml")
    return found[1].strip()


main()
