"""Looks at the newest core dump in a folder with gdb and py-spy, on the Python that has crashed."""

import subprocess
import sys
from pathlib import Path

PROGRAMS = Path(sys.executable).parent
PYTHON = Path(sys.executable).resolve()
# What gives gdb the command py-bt: a Python that was built with `make install` has it beside itself.
BESIDE = PYTHON.with_name(f"{PYTHON.name}-gdb.py")


def show(*command):
    print(f"$ {' '.join(map(str, command))}", flush=True)
    subprocess.run(command, check=False, stderr=subprocess.STDOUT)


def gdb(*command):
    show("gdb", "--batch", "--quiet", "-iex", f"add-auto-load-safe-path {BESIDE}", *command)


dumps = sorted(Path(sys.argv[1]).glob("core*"), key=lambda file: file.stat().st_mtime)
if dumps:
    dump = str(dumps[-1])
    gdb("-ex", "backtrace 12", "-ex", "py-bt", str(PYTHON), dump)
    show(str(PROGRAMS / "py-spy"), "dump", "--core", dump)
else:
    pattern = Path("/proc/sys/kernel/core_pattern").read_text().strip()
    print(f"there is no core dump in {sys.argv[1]}; the kernel writes them to {pattern!r}")
    print("so this crashes once more, under gdb:")
    crash = "import gauge; gauge.smooth(None, 6)"
    gdb("-ex", "run", "-ex", "backtrace 12", "-ex", "py-bt", "--args", str(PYTHON), "-c", crash)
