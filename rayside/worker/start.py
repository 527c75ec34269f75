"""Start file of Python: debuggers of a plain `breakpoint()` in a Ray task have to give a proof, and a driver
of `submit --debug` is opened to debuggers.

`rayside.pth` in site-packages runs the file that RAYSIDE_START names, in every Python of the environments
and images that Rayside makes; so this waits for Ray, and imports next to nothing before.
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
# The package that a job brings along, which the relay imports; the one around this file has a name of its own
# until something asks for `rayside` that no job has brought.
_PACKAGE, _OURS = "rayside", "_rayside_start"
# Only the drivers of jobs with --debug have these two (jobs.py).
_DRIVER, _JOB = "rayside.worker.driver.on_init", "RAY_JOB_CONFIG_JSON_ENV_VAR"
# debug_config.py. Only a field's own quotes have no backslash before them: two are read without `json`.
_CONFIG, _STARTED, _PARENTS = "RAYSIDE_DEBUG", '"started": true', '"parents": "'
_LONGEST, _MOST_PARENTS = 100_000, 4  # Linux takes no variable of 128 KiB


class _Finder:
    """Changes that one module as it is imported, and is gone then."""

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
    """Finds the package around this file, unless the path has a module or a package of that name.

    A folder without an `__init__.py`, as a clone in a home folder, is none.
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
    """Returns whether a process of one of these names, which may have started this one, has a debugger.

    It imports nothing that a program may have a module of its own for: most have no debugger.
    """
    import _socket
    import errno

    for name in names.split(":")[:_MOST_PARENTS]:
        try:
            connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
            connection.setblocking(False)  # A parent that stands still takes nobody, for as long as it does.
            error = connection.connect_ex(f"\0{name}")
            connection.close()
        except (OSError, AttributeError):
            return False
        if error in (0, errno.EAGAIN):  # Many ask at once: child.py asks again.
            return True
    return False


def _begin() -> None:
    """Opens this process to a debugger where that is asked for."""
    config = os.environ.get(_CONFIG, "{}")
    is_driver = os.environ.get("RAY_RUNTIME_ENV_HOOK") == _DRIVER and _JOB in os.environ
    if is_driver and _STARTED not in config:  # A driver's own children have all of it, too.
        try:
            import json

            text = json.dumps({**json.loads(config), "started": True})
        except (TypeError, ValueError, RecursionError):
            return  # `ray.init` will say so.
        if len(text) > _LONGEST:
            return  # No program could be started with it.
        os.environ[_CONFIG] = text
        try:
            found = importlib.util.find_spec(_PACKAGE)
            if found is not None and found.submodule_search_locations is None:
                raise ImportError(f"{found.origin} is another module of that name")  # and may be the program
            importlib.import_module("rayside.worker.driver").begin()
        except Exception as error:  # It is an earlier Rayside's package, or an environment that is not ours.
            sys.stderr.write(f"rayside: the driver is debugged from ray.init on: {error}\n")
        return
    names = config.partition(_PARENTS)[2].partition('"')[0]
    if names and _is_debugged(names) and _package("child").is_program(sys.orig_argv):
        importlib.import_module(f"{_OURS}.worker.attach").join_parents_debugger()


# Some Pythons read the files of site-packages twice, by way of lib and of lib64.
if not any(type(finder).__module__ == __name__ for finder in sys.meta_path):
    sys.meta_path[:0] = [_Finder(), _Around()]
    _begin()
