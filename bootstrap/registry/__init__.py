"""Speaks with registries of images, as https://github.com/opencontainers/distribution-spec has it."""
