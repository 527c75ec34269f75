"""OCI registries (https://github.com/opencontainers/distribution-spec): client, logins, bundles in them."""
