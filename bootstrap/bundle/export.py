"""`python -m bootstrap.bundle.export FILE DIGEST NAME ...` writes images of the bundle of that digest."""

from __future__ import annotations

import sys
from pathlib import Path

from bootstrap.bundle.images import archive
from bootstrap.bundle.opened import Bundle
from bootstrap.errors import BadBundle
from rayside.errors import RaysideError


def main(file: str, digest: str, *names: str) -> int:
    """Writes the images in the format of `docker load`; returns the exit code, and prints errors."""
    try:
        bundle = Bundle.of(Path(file))
        if bundle.manifest.digest != digest:
            raise BadBundle(f"{file} is another bundle by now", hint="run the command again")
        sys.stdout.buffer.writelines(archive([bundle.manifest.image(name) for name in names], bundle.read))
        sys.stdout.flush()
    except RaysideError as error:
        sys.stderr.write(f"{error.message}\n")
        return error.exit_code
    except BrokenPipeError:
        # The reader has reported the cause itself; Python would print it again at exit.
        sys.stderr.close()
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
