"""Names what Rayside keeps with a job: the keys in the metadata that Ray stores for it."""

from __future__ import annotations

# The folders that were packed, without symlinks; the second is a JSON list. Ray's own record says only what
# is in a package, not where it came from.
WORKING_DIR, PY_MODULES = "rayside.working_dir", "rayside.py_modules"
# It has the folders that were written with a symlink: {"resolved": "as written"}, both absolute.
LOCAL_ROOTS = "rayside.local_roots"
# It has the options of `submit --debug`: {"attach_timeout", "post_mortem", "driver"}.
DEBUG = "rayside.debug"
# It has the debugger's port of the job's driver: {"port", "pid"}. The hook writes it (scout.py), which knows
# nothing of this module: it runs where nothing else of ours is.
DRIVER = "rayside.driver"
