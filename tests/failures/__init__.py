"""Has the failures that tests produce on purpose, and what `diagnose` has to say of each.

The table in docs/internals/diagnose.md is made from them, and the tests compare them with what was said.
"""
