"""Tests that Ray itself takes and refuses the same fields of a runtime_env as Rayside does."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.patience import PATIENCE
from tests.targets import local_target
from tests.unit.rayside.test_runtime_env import REFUSED, TAKEN, filled, written

# What the client of Ray's Jobs API does with a runtime_env before it sends it.
RAYS_OWN = """\
import json, sys
from ray._private.runtime_env import py_modules, working_dir
from ray.runtime_env import RuntimeEnv

def problem(fields):
    try:
        for upload in (working_dir.upload_working_dir_if_needed, py_modules.upload_py_modules_if_needed):
            upload(fields, True, upload_fn=lambda *_, **__: None)
        hook = fields.get("worker_process_setup_hook")
        RuntimeEnv(**fields)
        return "" if isinstance(hook, str | None) else "the hook is not a text"
    except Exception as error:
        return f"{type(error).__name__}: {error}"

print(json.dumps([[problem(fields) for fields in table] for table in json.load(sys.stdin)]))
"""


def test_ray_takes_and_refuses_the_same(tmp_path: Path) -> None:
    folder = written(tmp_path)
    # JSON would make texts of other names.
    refused = [fields for _, fields in REFUSED if 1 not in fields and {1: "a"} not in fields.values()]
    done = subprocess.run(
        [str(local_target().environment.programs / "python"), "-c", RAYS_OWN],
        input=json.dumps(filled([TAKEN, refused], folder)),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    of_taken, of_refused = json.loads(done.stdout.splitlines()[-1])
    assert [error for error in of_taken if error] == []
    assert [fields for fields, error in zip(refused, of_refused, strict=True) if not error] == []
