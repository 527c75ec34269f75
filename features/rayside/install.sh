#!/bin/sh
# Installs the package `rayside` for the first python3 on the PATH: beside the Ray that this Python has.
#
# It is run as root while an image is built, in this folder, with the options as variables: VERSION, SOURCE.
set -eu

fail() {
    echo "error: $1" >&2
    echo " hint: $2" >&2
    exit 1
}
more='add "ghcr.io/devcontainers/features/python:1": {} to the features, or use an image with Python and pip'

case ${SOURCE:-} in
    '') package=rayside ;;
    *://*) package=$SOURCE ;;
    *) package=$(realpath "$SOURCE") && [ -f "$package" ] || fail "there is no wheel $SOURCE" "correct the option source" ;;
esac
if [ "$package" = rayside ] && [ "${VERSION:-latest}" != latest ]; then
    package=rayside==$VERSION
fi

python=$(command -v python3 || command -v python) || fail "there is no Python on the PATH" "$more"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    fail "$python is older than Python 3.10" "$more"

# A Python in somebody's home is theirs, and so is what is installed there.
owner=root
case $("$python" -c 'import sys; print(sys.prefix)')/ in
    "${_REMOTE_USER_HOME:-/nonexistent}"/*) owner=${_REMOTE_USER:-root} ;;
esac
as_owner() {
    if [ "$owner" = root ]; then
        "$@"
    else
        su "$owner" -s /bin/sh -c 'exec "$0" "$@"' "$@"
    fi
}

# Where the system's packages are the system's alone (PEP 668), it gets an environment that sees them, Ray too.
own=/usr/local/share/rayside
marked='import os, sys, sysconfig
file = os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")
sys.exit(not (sys.prefix == sys.base_prefix and os.path.exists(file)))'
if "$python" -c "$marked"; then
    # Debian's Python can make one with a pip of its own only where python3-venv is installed.
    "$python" -m venv --system-site-packages "$own" >/dev/null 2>&1 ||
        "$python" -m venv --system-site-packages --clear --without-pip "$own"
    python=$own/bin/python
fi
# No cache is left in a home.
if "$python" -m pip --version >/dev/null 2>&1; then
    as_owner "$python" -m pip --disable-pip-version-check --no-cache-dir install "$package"
elif uv=$(command -v uv); then
    as_owner "$uv" --no-cache pip install --python "$python" "$package"
else
    fail "there is neither pip nor uv for $python" "$more"
fi

programs=$("$python" -c 'import sysconfig; print(sysconfig.get_path("scripts"))')
[ "$(command -v rayside)" = "$programs/rayside" ] || ln -sf "$programs/rayside" /usr/local/bin/rayside
rayside --version
