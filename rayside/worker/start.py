"""Start file of Python: authenticates debuggers of a plain `breakpoint()` in a Ray task, and opens the
debugger port of a `submit --debug` driver.

`rayside.pth` in site-packages runs the file in the variable RAYSIDE_START, in every Python of Rayside's
environments and images. It therefore hooks the import of Ray, and imports very little itself.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # The module `typing` would take longer than all of this.
    from collections.abc import Sequence
    from types import ModuleType
    from typing import Any

# `breakpoint()` calls this module's `set_trace` in a task (Ray 2.39 and later).
_RAYS_OWN = "ray.util.debugpy"
# Name of the job's own package, which the relay imports, and of the package around this file. The latter is
# only imported as `rayside` if the job has brought none.
_PACKAGE, _OURS = "rayside", "_rayside_start"
# Only the drivers of jobs with --debug have these two (jobs.py).
_DRIVER, _JOB = "rayside.worker.driver.on_init", "RAY_JOB_CONFIG_JSON_ENV_VAR"
# Fields of debug_config.py, read without `json`: quotes within values have a backslash before them.
_CONFIG, _STARTED, _PARENTS = "RAYSIDE_DEBUG", '"started": true', '"parents": "'
_LONGEST, _MOST_PARENTS = 100_000, 4  # Linux limits a variable to less than 128 KiB


class _Finder:
    """Import hook that changes Ray's debugger module at its import, and then removes itself."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != _RAYS_OWN:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                load = module._try_import_debugpy

                def load_ours() -> Any:
                    debugpy = load()
                    return debugpy and _package("attach").for_breakpoints(debugpy)

                module._try_import_debugpy = load_ours  # type: ignore[attr-defined]

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


class _Around:
    """Import hook for the package around this file, unless sys.path has a module or package of that name.

    A folder without an `__init__.py`, such as a clone in a home folder, does not count.
    """

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != _PACKAGE:
            return None
        found = importlib.machinery.PathFinder.find_spec(name, path, target)
        if found is not None and found.has_location:
            return found
        ours = _spec(name)
        if found is not None and ours is not None:
            assert ours.submodule_search_locations is not None
            ours.submodule_search_locations += found.submodule_search_locations or []
        return ours


def _spec(name: str) -> importlib.machinery.ModuleSpec | None:
    folder = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120 (no pathlib: it is slow)
    return importlib.util.spec_from_file_location(
        name, f"{folder}/__init__.py", submodule_search_locations=[folder]
    )


def _package(module: str) -> Any:
    """Returns a module of the package around this file."""
    spec = _spec(_OURS)
    assert spec is not None and spec.loader is not None
    sys.modules[_OURS] = package = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)
    return importlib.import_module(f"{_OURS}.worker.{module}")


def _is_debugged(names: str) -> bool:
    """Returns whether a process at one of these socket names, a possible parent, has a debugger.

    Avoids imports that a program's own modules may shadow: most processes have no debugger.
    """
    import _socket
    import errno

    for name in names.split(":")[:_MOST_PARENTS]:
        try:
            connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
            connection.setblocking(False)  # A stopped parent does not accept connections.
            error = connection.connect_ex(f"\0{name}")
            connection.close()
        except (OSError, AttributeError):
            return False
        if error in (0, errno.EAGAIN):  # Many children connect at once: child.py retries.
            return True
    return False


def _begin() -> None:
    """Opens this process's debugger port if its environment requests that."""
    config = os.environ.get(_CONFIG, "{}")
    is_driver = os.environ.get("RAY_RUNTIME_ENV_HOOK") == _DRIVER and _JOB in os.environ
    if is_driver and _STARTED not in config:  # A driver's children inherit these variables.
        try:
            import json

            text = json.dumps({**json.loads(config), "started": True})
        except (TypeError, ValueError, RecursionError):
            return  # `ray.init` will report it.
        if len(text) > _LONGEST:
            return  # No program could be started with such a variable.
        os.environ[_CONFIG] = text
        try:
            found = importlib.util.find_spec(_PACKAGE)
            if found is not None and found.submodule_search_locations is None:
                raise ImportError(f"{found.origin} is another module of that name")  # and may be the program
            importlib.import_module("rayside.worker.driver").begin()
        except Exception as error:  # an earlier version's package, or an environment without Rayside's
            sys.stderr.write(f"rayside: the driver is debugged from ray.init on: {error}\n")
        return
    names = config.partition(_PARENTS)[2].partition('"')[0]
    if names and _is_debugged(names) and _package("child").is_program(sys.orig_argv):
        importlib.import_module(f"{_OURS}.worker.attach").join_parents_debugger()


# Some Pythons read the files of site-packages twice, through lib and through lib64.
if not any(type(finder).__module__ == __name__ for finder in sys.meta_path):
    sys.meta_path[:0] = [_Finder(), _Around()]
    _begin()
