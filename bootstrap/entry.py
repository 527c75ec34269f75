"""Entry point of `./invokew`: Invoke, without what its user's own files tell it for other projects."""

from __future__ import annotations

from invoke.config import Config
from invoke.main import program


class _Config(Config):
    def load_base_conf_files(self) -> None:
        """Reads none of /etc/invoke.* and ~/.invoke.*, which may name other tasks, or run code."""


if __name__ == "__main__":
    program.config_class = _Config
    program.run()
