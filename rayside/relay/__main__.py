"""Entry point of the debug relay's process: `python -m rayside.relay --config FILE`.

FILE is JSON: `host` and `port` to listen on, `dashboard` (an address such as http://127.0.0.1:8265),
`token_file`, the file with Ray's authentication token, `shared_files` and `user`, as `Relay` takes them, and
`masking`, `{"names", "values", "by_value"}`, with environment variables as defaults
(`RAYSIDE_MASKED_NAMES`, `RAYSIDE_MASKED_VALUES`, `RAYSIDE_MASK_BY_VALUE`).
The process runs on the Python of the cluster's Ray image, so it imports only the standard library and the
dependencies of Ray.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import logging
import os
import shutil
import signal
import sys
from dataclasses import replace
from pathlib import Path

from rayside.errors import PortTaken, RaysideError
from rayside.relay.cluster import ClusterDebuggees
from rayside.relay.config import Config, digest_of
from rayside.relay.debuggee import Discovery
from rayside.relay.fan_out import allow_many_files
from rayside.relay.program_debuggees import ProgramDebuggees
from rayside.relay.server import Relay

# Seconds between two attempts to read the token: Kubernetes may mount it after the container starts.
_TOKEN_PAUSE = 0.2

_log = logging.getLogger(__name__)


async def serve(config: Config) -> None:
    """Serves until SIGTERM or SIGINT, then detaches from all debuggees. Raises PortTaken."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    token = await _token(config.token_file, stop)
    if stop.is_set():
        return
    debuggees = _debuggees(config, token)
    relay = Relay(
        debuggees,
        digest=digest_of(token),
        log=_log.info,
        user=config.user,
        shared_files=config.shared_files,
        masking=replace(config.masking, token=token),
    )
    try:
        server = await relay.serve(config.host, config.port)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise PortTaken(
            f"port {config.port} is taken", hint="./invokew doctor says by whom; ./invokew up goes on"
        ) from None
    port = server.sockets[0].getsockname()[1]
    _log.info("listening on %s:%s for %s", config.host, port, config.dashboard or config.program)
    if config.program:
        sys.stdout.write(f"rayside: {port}\n")
        sys.stdout.flush()
        # Standard input ends when the parent process exits.
        asyncio.get_running_loop().add_reader(0, _end_of_input, stop)
    await stop.wait()
    _log.info("ending")
    server.close()
    await relay.close()
    if config.program:
        # The parent process removes this folder as well, unless it was killed.
        shutil.rmtree(Path(config.program).parent, ignore_errors=True)


def _debuggees(config: Config, token: str) -> Discovery:
    if config.program:
        return ProgramDebuggees(Path(config.program), token, config.user)
    return ClusterDebuggees.at(config.dashboard, token if config.rays_token else "", config.user)


def _end_of_input(stop: asyncio.Event) -> None:
    if not os.read(0, 1024):
        asyncio.get_running_loop().remove_reader(0)
        stop.set()


async def _token(file: Path, stop: asyncio.Event) -> str:
    """Waits for Ray's token, and returns it; empty if the process has to end first."""
    reported = False
    while not stop.is_set():
        try:
            if token := file.read_text().strip():
                return token
        except FileNotFoundError:
            pass
        if not reported:
            _log.info("waiting for the token in %s", file)
            reported = True
        await asyncio.sleep(_TOKEN_PAUSE)
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(
        "python -m rayside.relay", description="Runs the debug relay of a cluster."
    )
    parser.add_argument(
        "--config", type=Path, required=True, metavar="FILE", help="its configuration, as JSON"
    )
    config = parser.parse_args().config
    allow_many_files()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(serve(Config.read(config)))
    except RaysideError as error:
        _log.info("error[%s]: %s", error.id, error.message)
        return error.exit_code
    return 0


if __name__ == "__main__":
    code = main()
    logging.shutdown()
    # sys.exit would wait for the thread of a pending dashboard request.
    os._exit(code)
