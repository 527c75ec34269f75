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
# What is wrong with the proxy comes first: pip 23.2 has the words for an index, too. uv 0.9.24 does not
# tell a login that lacks from a refusal, 0.13.9 does (the texts are theirs, and those of pip 23.2 and 26.3).
_PROXY = "the proxy to the package index"
_OF_THE_PROXY = (
    (
        r"Tunnel connection failed: 407|tunnel error: proxy authorization required",
        f"{_PROXY}{{}} wants a login, or refuses the one that it got",
        f"put http://USER:PASSWORD@HOST:PORT into the setting package_proxy {_FOR}, and ./invokew up",
    ),
    (
        r"Tunnel connection failed: \d|tunnel error: unsuccessful",
        f"{_PROXY}{{}} does not lead there: it refuses, wants a login, or can't reach the index itself",
        f"have the proxy's keeper allow it, or correct the setting package_proxy {_FOR}, and ./invokew up",
    ),
    (
        r"total=0,[^\n]{0,200}connection broken by 'Proxy\w*Error"
        r"|tunnel error: failed to create underlying connection",
        f"{_PROXY}{{}} can't be reached from there",
        f"name one that pods reach in the setting package_proxy {_FOR}, and ./invokew up",
    ),
    (
        r"unknown field `http-proxy`",
        "uv is older there than 0.9.23, the first that can be told of a proxy by a file",
        'ask for a newer one in the runtime_env, by "uv_version": ">=0.9.23", and submit again',
    ),
)
# pip and uv end with the name of the package, as if the index did not have it. Other lines of theirs say what
# is wrong with the index itself (pip 23.2 and 26.3, uv 0.4.27 to 0.13.9): these, with what to do about it.
_OF_THE_INDEX = (
    (
        r"CERTIFICATE_VERIFY_FAILED\][^\n]{0,300}(?:issuer certificate|self[- ]signed)"
        r"|peer certificate: UnknownIssuer",
        "has a certificate of an authority that is not known there",
        f"name the authority's file in the setting package_index_ca {_FOR}, and make the cluster anew",
    ),
    (
        r"Could not fetch URL [^\n]{0,300}problem confirming the ssl certificate|invalid peer certificate",
        "has a certificate that is of another host, or of another time",
        f"have it mended, or name another index in the setting package_index {_FOR}",
    ),
    (
        r"40[13] Error, Credentials not correct|HTTP error 40[13] while getting|in _prompt_for_password"
        r"|lack of valid authentication credentials|returned a 403 Forbidden",
        "wants a login, or refuses the one that it got",
        f"put https://USER:PASSWORD@HOST/PATH into the setting package_index {_FOR}, and ./invokew up",
    ),
    (
        r"total=0,[^\n]{0,200}connection broken by "
        r"'(?:\w*(?:Connection|Resolution|Timeout)|Protocol)\w*Error"
        r"|(?:cause:|Caused by:|─▶) (?:tcp connect error|dns error|operation timed out)",
        "can't be reached from there",
        f"name one that pods reach in the setting package_index {_FOR}, and make the cluster anew",
    ),
)
_TO_THE_PROXY = f"correct the setting package_proxy, or package_index {_FOR}, and ./invokew up"
_HOST = re.compile(r"https?://(?:[^\s/@]*@)?((?:[\w.-]+|\[[\w:]+\])(?::\d+)?)|host='([\w.:-]+)'")


def explained(text: str) -> tuple[str, str]:
    """Returns why a runtime_env could not be made, and the one next thing to do."""
    text = text[-_MOST:]
    for sign, why, hint in _OF_THE_PROXY:
        if found := re.search(sign.replace(" ", r"\s+"), text):
            return why.format(_host(text, found)), hint
    for sign, why, hint in _OF_THE_INDEX:
        # uv breaks its lines anywhere.
        if found := re.search(sign.replace(" ", r"\s+"), text):
            host = _host(text, found)
            if _is_on_the_way(text, found):
                return f"{host.strip()}, on the way to the package index, {why}", _TO_THE_PROXY
            return f"the package index{host} {why}", hint
    return _reason(text), "correct what it names in the runtime_env, and submit again"


def _is_on_the_way(text: str, found: re.Match[str]) -> bool:
    """Returns whether pip names another host than an index: newer ones name a proxy that is away so."""
    named = re.search(r"host='([\w.:-]+)'", found[0] + text[found.end() :].partition("\n")[0])
    indexes = re.search(r"Looking in indexes: (.+)", text)
    if named is None or indexes is None:
        return False
    return named[1] not in [re.sub(r":\d+$", "", host[1]) for host in _HOST.finditer(indexes[1]) if host[1]]


def _host(text: str, found: re.Match[str]) -> str:
    """Returns whose words these are, with a space before: the host on their lines, else the only one."""
    begin, end = text.rfind("\n", 0, found.start()) + 1, text.find("\n", found.end())
    on_it = _HOST.search(text, begin, len(text) if end < 0 else end)
    hosts = {host[1] or host[2] for host in ([on_it] if on_it else _HOST.finditer(text))}
    # pip names one with its port, and without.
    is_one = len({re.sub(r":\d+$", "", host) for host in hosts}) == 1
    return f" {max(hosts, key=len)}" if is_one else ""


def _reason(text: str) -> str:
    """Returns the line that says most, as pip's `ERROR: No matching distribution found for x`."""
    lines = [stripped for line in text.splitlines() if (stripped := line.strip())]
    telling = [line for line in lines if _TELLING.match(line) and not _EMPTY.search(line)]
    if telling:
        return telling[-1].removeprefix("ERROR: ")
    return lines[-1] if lines else "Ray gave no reason"
