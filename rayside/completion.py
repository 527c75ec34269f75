"""Completion of the commands and options of `rayside`, for bash, zsh and fish."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Protocol

from rayside.errors import InvalidArgument
from rayside.options import Option


class Command(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def help(self) -> str: ...

    @property
    def all_options(self) -> tuple[Option, ...]: ...


def script(shell: str, commands: Sequence[Command]) -> str:
    """Returns the script for a shell. Raises InvalidArgument for one that it does not know."""
    if shell == "fish":
        return "".join(f"{line}\n" for line in _fish(commands))
    if shell not in ("bash", "zsh"):
        raise InvalidArgument(f"no completion for {shell!r}", hint="name bash, zsh or fish")
    # zsh runs the script of bash.
    before = "autoload -U +X bashcompinit && bashcompinit\n" if shell == "zsh" else ""
    return before + _bash(commands)


def _bash(commands: Sequence[Command]) -> str:
    names = " ".join(command.name for command in commands)
    cases = "".join(f"    {command.name}) words='{_words(command)} --help' ;;\n" for command in commands)
    # What does not begin with a dash is completed as a file.
    return f"""\
_rayside() {{
  local words current=${{COMP_WORDS[COMP_CWORD]}}
  case "${{COMP_WORDS[1]}}" in
{cases}    *) words='{names} --help --version' ;;
  esac
  [ "$COMP_CWORD" -eq 1 ] && words='{names} --help --version'
  if [ "$COMP_CWORD" -eq 1 ] || [[ "$current" == -* ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$current"))
  else
    COMPREPLY=()
  fi
}}
complete -o default -F _rayside rayside
"""


def _words(command: Command) -> str:
    return " ".join(f"--{option.name}" for option in command.all_options)


def _fish(commands: Sequence[Command]) -> list[str]:
    lines = ["complete -c rayside -n __fish_use_subcommand -l version -d 'show the version'"]
    for command in commands:
        lines.append(
            f"complete -c rayside -n __fish_use_subcommand -f -a {command.name} "
            f"-d {shlex.quote(command.help)}"
        )
        of = f"-n '__fish_seen_subcommand_from {command.name}'"
        for option in command.all_options:
            takes = " -r" if option.metavar else ""
            lines.append(f"complete -c rayside {of} -l {option.name}{takes} -d {shlex.quote(option.help)}")
    return lines
