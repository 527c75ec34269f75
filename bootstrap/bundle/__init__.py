"""Puts all that `up` needs into one file, and takes it from there where there is no network."""
