"""Has this process leave a core dump behind when it crashes."""

import os
import resource
from pathlib import Path


def keep(folder):
    """Has the kernel write a core dump of this process into that folder."""
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (most, most))
    Path(folder).mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    # The largest that a core dump may be, now and at most, in bytes; -1 is no limit.
    print(f"core dumps may have {resource.getrlimit(resource.RLIMIT_CORE)} bytes")
    # A name without a folder is one in the folder that the process is in.
    pattern = Path("/proc/sys/kernel/core_pattern").read_text().strip()
    print(f"the kernel writes them to {pattern!r}, and this process is in {Path.cwd()}")
