"""Bundles: everything that `up` needs in one file, for machines without network."""
