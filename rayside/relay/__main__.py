"""Runs the debug relay of a Ray cluster as a process: `python -m rayside.relay --config FILE`.

FILE is JSON: `host` and `port` to listen on, `dashboard` (an address as http://127.0.0.1:8265),
`token_file`, which holds Ray's authentication token, `shared_files` and `user`, as `Relay` takes them, and
`masking`, `{"names", "values", "by_value"}`, for which the environment may stand in
(`RAYSIDE_MASKED_NAMES`, `RAYSIDE_MASKED_VALUES`, `RAYSIDE_MASK_BY_VALUE`).
The process runs on the Python of the cluster's Ray image, so it imports nothing but the standard library and
what Ray itself needs.
"""

import logging
import os

from rayside.relay.process import main

if __name__ == "__main__":
    code = main()
    logging.shutdown()
    # sys.exit would wait for a request to a dashboard that hangs.
    os._exit(code)
