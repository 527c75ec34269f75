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


# Metavars of options whose values are completed as files; other values are not completed.
_OF_FILES = ("D", "F", "FILE", "FILE:LINE[:CONDITION]", "PLACE")
# zsh runs bash's script, but has no compopt.
_ZSH = """\
autoload -U +X bashcompinit && bashcompinit
{bash}\
_rayside_zsh() {{
  case "${{words[CURRENT-1]}}" in {others}) return 1 ;; esac
  _bash_complete -o default -F _rayside
}}
compdef _rayside_zsh rayside
"""


def script(shell: str, commands: Sequence[Command]) -> str:
    """Returns the script for a shell. Raises InvalidArgument for an unknown shell."""
    if shell == "fish":
        return "".join(f"{line}\n" for line in _fish(commands))
    if shell not in ("bash", "zsh"):
        raise InvalidArgument(f"no completion for {shell!r}", hint="name bash, zsh or fish")
    options = [option for command in commands for option in command.all_options]
    others = [f"--{each.name}" for each in options if each.metavar and each.metavar not in _OF_FILES]
    pattern = "|".join(dict.fromkeys(others))
    bash = _bash(commands, pattern)
    return bash if shell == "bash" else _ZSH.format(bash=bash, others=pattern)


def _bash(commands: Sequence[Command], others: str) -> str:
    names = " ".join(command.name for command in commands)
    cases = "".join(f"    {command.name}) words='{_words(command)} --help' ;;\n" for command in commands)
    # A word without a leading dash is completed as a file.
    return f"""\
_rayside() {{
  local words current=${{COMP_WORDS[COMP_CWORD]}}
  case "${{COMP_WORDS[COMP_CWORD-1]}}" in {others}) COMPREPLY=(); compopt +o default; return ;; esac
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
            takes = (" -r" if option.metavar in _OF_FILES else " -x") if option.metavar else ""
            lines.append(f"complete -c rayside {of} -l {option.name}{takes} -d {shlex.quote(option.help)}")
    return lines
