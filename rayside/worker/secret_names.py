"""Names of secrets: checks whether a name's value is secret. Also runs in debuggees, so it imports little."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

# Parts of a name that mark its value as secret, besides `key` as its last word.
_FRAGMENTS = (
    r"tokens?|passw(?:or)?d|passphrase|pwd|secrets?|(?:api|access|private|secret|encryption|signing)_?keys?"
    r"|credentials?|authorization|cookies?|session_?id|signature|connection_?string|dsn"
)
_SECRET_NAME = re.compile(
    rf"(?i)(?:^|[^a-z])(?:{_FRAGMENTS})(?:$|[^a-z])|^aws|(?:^|[^a-z])(?:key|auth|jwt|pat)s?$"
)
# Ambiguous names, which also count as secrets in large amounts of data whose values are not needed.
_PERHAPS = re.compile(
    r"(?i)passw(?:or)?d|(?:^|[^a-z])(?:pass|sig|sas|otp|conn_?str)(?:$|[^a-z])"
    r"|(?:token|secret|(?<!mon)(?<!public)key)s?\d*$|key.?data$|dockerconfigjson"
)
# Names of a Kubernetes Secret, of an error, or of the current folder, whose values are no secrets.
_NO_SECRET = re.compile(
    r"(?:Error|Exception|Warning)$|^secretKeyRef$|^secretName$|^imagePullSecrets$|^(?:OLD)?PWD$"
)
# Exceptions for Python's variables: these are usually a loop's variable or the words of a text.
USUAL = "!key,!keys,!tokens"
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def is_secret_name(name: str) -> bool:
    """Returns whether the name of a variable, a field or an option indicates a secret value."""
    name = _WORDS.sub("_", name)
    return bool(_SECRET_NAME.search(name)) and not _NO_SECRET.search(name.replace("_", ""))


def may_be_secret_name(name: str) -> bool:
    """Returns the same, also for ambiguous names such as `pass` and `sig`."""
    word = _WORDS.sub("_", name)
    perhaps = _PERHAPS.search(word) and not _NO_SECRET.search(word.replace("_", ""))
    return bool(perhaps) or is_secret_name(name)


class SecretNames:
    """Names of secrets: `is_secret_name`, with additions and exceptions by a rule.

    Args:
        rule: `fnmatch` patterns, case-insensitive, separated by commas; a pattern after `!` excludes names.
            Empty: `is_secret_name` alone.
    """

    def __init__(self, rule: str = "") -> None:
        patterns = [part.strip().lower() for part in rule.split(",") if part.strip()]
        self._added = [pattern for pattern in patterns if not pattern.startswith("!")]
        self._excepted = [pattern[1:].strip() for pattern in patterns if pattern.startswith("!")]

    def are_added(self, name: str) -> bool:
        """Returns whether the rule itself adds the name."""
        return any(fnmatchcase(name.lower(), pattern) for pattern in self._added)

    def include(self, name: str) -> bool:
        is_excepted = any(fnmatchcase(name.lower(), pattern) for pattern in self._excepted)
        return self.are_added(name) or (is_secret_name(name) and not is_excepted)
