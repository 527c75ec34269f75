"""Finds, in what Ray says of a runtime_env that could not be made, why, and what to do about it."""

from __future__ import annotations

import re

# The programs that make it say so, and an exception's line otherwise.
_TELLING = re.compile(r"^(ERROR: .+|error: .+|[\w.]*(?:Error|Exception): .+|.*No such file or directory.*)$")
# These only say that something failed.
_EMPTY = re.compile(r"SubprocessCalledProcessError|RuntimeEnvSetupError|Failed to set up")

# So much of what they say is looked at, from its end: it is for the most part a traceback.
_MOST = 20_000

# Which settings say where pods have packages from, and for which clusters.
_FOR = "(targets kind, and cluster with --create)"
# pip and uv end with the name of the package, as if the index did not have it. Other lines of theirs say what
# is wrong with the index itself (pip 23.2 and 26.3, uv 0.4.27 to 0.13.9): these, with what to do about it.
# A proxy comes first: pip 23.2 has the words for an index, too, and pip 26.3 those for an index alone.
_OF_THE_INDEX = (
    (
        r"unknown field `http-proxy`",
        "uv is older there than 0.9.23, the first that can be told of a proxy by a file",
        'ask for a newer one in the runtime_env, by "uv_version": ">=0.9.23", and submit again',
    ),
    (
        r"Tunnel connection failed|tunnel error: |total=0,[^\n]{0,200}connection broken by 'Proxy\w*Error",
        "the proxy to the package index can't be reached, wants a login, or refuses",
        f"correct http://USER:PASSWORD@HOST:PORT in the setting package_proxy {_FOR}, and ./invokew up",
    ),
    (
        r"CERTIFICATE_VERIFY_FAILED\][^\n]{0,300}(?:issuer certificate|self[- ]signed)"
        r"|Could not fetch URL [^\n]{0,300}problem confirming the ssl certificate"
        r"|peer certificate: UnknownIssuer|invalid peer certificate",
        "the package index has a certificate of an authority that is not known there, or of another host",
        f"name the authority's file in the setting package_index_ca {_FOR}, and make the cluster anew",
    ),
    (
        r"40[13] Error, Credentials not correct|HTTP error 40[13] while getting|in _prompt_for_password"
        r"|lack of valid authentication credentials|returned a 403 Forbidden",
        "the package index wants a login, or refuses the one that it got",
        f"put https://USER:PASSWORD@HOST/PATH into the setting package_index {_FOR}, and ./invokew up",
    ),
    (
        r"total=0,[^\n]{0,200}connection broken by "
        r"'(?:\w*(?:Connection|Resolution|Timeout)|Protocol)\w*Error"
        r"|(?:cause:|Caused by:|─▶) (?:tcp connect error|dns error|operation timed out)",
        "the package index can't be reached from there",
        f"name one that pods reach in the setting package_index {_FOR}, or a proxy in package_proxy, "
        "and make the cluster anew",
    ),
)


def explained(text: str) -> tuple[str, str]:
    """Returns why a runtime_env could not be made, and the one next thing to do."""
    text = text[-_MOST:]
    for sign, why, hint in _OF_THE_INDEX:
        # uv breaks its lines anywhere.
        if re.search(sign.replace(" ", r"\s+"), text):
            return why, hint
    return _reason(text), "correct what it names in the runtime_env, and submit again"


def _reason(text: str) -> str:
    """Returns the line that says most, as pip's `ERROR: No matching distribution found for x`."""
    lines = [stripped for line in text.splitlines() if (stripped := line.strip())]
    telling = [line for line in lines if _TELLING.match(line) and not _EMPTY.search(line)]
    if telling:
        return telling[-1].removeprefix("ERROR: ")
    return lines[-1] if lines else "Ray gave no reason"
