"""Has one task, whose worker process is killed with SIGKILL while it runs."""

import os
import signal

import ray


@ray.remote(max_retries=0)
def count_rows():
    os.kill(os.getpid(), signal.SIGKILL)


ray.init()
ray.get(count_rows.remote())
