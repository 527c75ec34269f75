"""The debugger of Rayside: shows a whole Ray cluster to an editor as one process."""

from __future__ import annotations

import importlib

__version__ = "0.1.0"


def load_ipython_extension(shell: object) -> None:
    """Extends IPython: `%load_ext rayside` calls it."""
    # Imported by name, so that workers, which import this package, don't need that module.
    importlib.import_module("rayside.notebook_extension").load(shell)
