"""Reads the arguments of an editor's `attach` that say how debuggees are debugged, and where files lie."""

from __future__ import annotations

from bootstrap.dap.client import STOP_IN_USER_CODE
from bootstrap.dap.framing import Message
from bootstrap.relay.editor import Refused

# These arguments of `attach` say how debuggees are debugged. No others get to debuggees.
_OPTIONS = ("justMyCode", "showReturnValue")


def options_of(arguments: Message) -> Message:
    """Returns how debuggees are debugged: debugpy's `attach` arguments. Raises Refused."""
    options = {name: arguments[name] for name in _OPTIONS if name in arguments}
    rules = arguments.get("rules") or []
    if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
        raise Refused("`rules` has to be a list of objects")
    # Without our rules, which are first, nothing would stop at a `breakpoint()`.
    own_rules = STOP_IN_USER_CODE["rules"]
    return {
        **STOP_IN_USER_CODE,
        **options,
        "rules": [*own_rules, *(rule for rule in rules if rule not in own_rules)],
    }


def mappings_of(arguments: Message) -> list[tuple[str, str]]:
    """Returns the pairs of a local and a remote root. Raises Refused."""
    path_mappings = arguments.get("pathMappings")
    if path_mappings is None:
        return []
    if not isinstance(path_mappings, list):
        raise Refused("`pathMappings` has to be a list")
    mappings = []
    for mapping in path_mappings:
        local = mapping.get("localRoot") if isinstance(mapping, dict) else None
        remote = mapping.get("remoteRoot") if isinstance(mapping, dict) else None
        if not isinstance(local, str) or not isinstance(remote, str) or not local.startswith("/"):
            raise Refused("each of `pathMappings` has an absolute localRoot and a remoteRoot")
        mappings.append((local, remote))
    return mappings
