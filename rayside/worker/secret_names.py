"""Names of secrets: whether a name tells that its value is one. Debuggees have it too: it imports nothing."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

# A name says that its value is secret by one of these, or by `key` as its last word.
_FRAGMENTS = (
    r"tokens?|passw(?:or)?d|passphrase|pwd|secrets?|(?:api|access|private|secret|encryption|signing)_?keys?"
    r"|credentials?|authorization|cookies?|session_?id|signature|connection_?string|dsn"
)
_SECRET_NAME = re.compile(
    rf"(?i)(?:^|[^a-z])(?:{_FRAGMENTS})(?:$|[^a-z])|^aws|(?:^|[^a-z])(?:key|auth|jwt|pat)s?$"
)
# Where much is read and nobody needs the values, these say so, too; they are also the words of other things.
_PERHAPS = re.compile(
    r"(?i)passw(?:or)?d|(?:^|[^a-z])(?:pass|sig|sas|otp|conn_?str)(?:$|[^a-z])"
    r"|(?:token|secret|(?<!mon)(?<!public)key)s?\d*$|key.?data$|dockerconfigjson"
)
# These name a Secret of Kubernetes, an error, or the current folder, and hold none.
_NO_SECRET = re.compile(
    r"(?:Error|Exception|Warning)$|^secretKeyRef$|^secretName$|^imagePullSecrets$|^(?:OLD)?PWD$"
)
# These names look secret, and in Python they are a loop's variable or the words of a text.
USUAL = "!key,!keys,!tokens"
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def is_secret_name(name: str) -> bool:
    """Returns whether a variable, a field or an option of that name holds a secret, to judge by its name."""
    name = _WORDS.sub("_", name)
    return bool(_SECRET_NAME.search(name)) and not _NO_SECRET.search(name.replace("_", ""))


def may_be_secret_name(name: str) -> bool:
    """Returns the same of names that may as well be of something else, as `pass` and `sig`."""
    word = _WORDS.sub("_", name)
    perhaps = _PERHAPS.search(word) and not _NO_SECRET.search(word.replace("_", ""))
    return bool(perhaps) or is_secret_name(name)


class SecretNames:
    """Names that hold secrets: those that `is_secret_name` knows, with what a rule adds and excepts.

    Args:
        rule: patterns as `fnmatch` has them, case aside, with commas between; one that begins with `!` is of
            names that hold no secret. Empty: `is_secret_name` alone.
    """

    def __init__(self, rule: str = "") -> None:
        patterns = [part.strip().lower() for part in rule.split(",") if part.strip()]
        self._added = [pattern for pattern in patterns if not pattern.startswith("!")]
        self._excepted = [pattern[1:].strip() for pattern in patterns if pattern.startswith("!")]

    def are_added(self, name: str) -> bool:
        """Returns whether the rule itself names it."""
        return any(fnmatchcase(name.lower(), pattern) for pattern in self._added)

    def include(self, name: str) -> bool:
        is_excepted = any(fnmatchcase(name.lower(), pattern) for pattern in self._excepted)
        return self.are_added(name) or (is_secret_name(name) and not is_excepted)
