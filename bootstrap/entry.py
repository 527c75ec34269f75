"""Entry point of `./invokew`: Invoke without its system and user configuration files."""

from __future__ import annotations

from invoke.config import Config
from invoke.main import program


class _Config(Config):
    def load_base_conf_files(self) -> None:
        """Skips /etc/invoke.* and ~/.invoke.*, which may name other tasks, or run code."""


if __name__ == "__main__":
    program.config_class = _Config
    program.run()
