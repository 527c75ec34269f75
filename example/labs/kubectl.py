"""Becomes the kubectl that Rayside has brought, on the cluster that is up, in its namespace."""

from __future__ import annotations

import os
import sys

from invoke.config import Config

from bootstrap.given_settings import parse
from bootstrap.labs.pods import kubectl
from bootstrap.settings import ROOT, Settings
from bootstrap.targets import choice
from rayside.errors import RaysideError
from rayside.system.shell import Shell


def settings() -> Settings:
    """Returns what ./invokew has too: invoke.yaml and the environment say which cluster is meant."""
    names = {"rayside": dict.fromkeys(Settings.__dataclass_fields__)}
    config = Config(defaults=names, project_location=str(ROOT))
    config.load_project()
    config.load_shell_env()
    return parse(config["rayside"])


def command(arguments: list[str]) -> list[str]:
    """Returns kubectl's whole command. Raises what `choice.existing` and `kubectl` raise."""
    return kubectl(choice.existing(settings(), Shell()), *arguments)


if __name__ == "__main__":
    try:
        words = command(sys.argv[1:])
    except RaysideError as error:
        print(f"error[{error.id}]: {error.message}\n hint: {error.hint}", file=sys.stderr)
        sys.exit(error.exit_code)
    os.execv(words[0], words)
