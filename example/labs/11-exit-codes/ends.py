"""Ends in the way that its argument names."""

import ctypes
import os
import resource
import signal
import sys


def well() -> None:
    print("all rows were counted")


def raises() -> None:
    int("seven")


def interrupted() -> None:
    # Ctrl-C does so. Python then ends by the signal, SIGINT, as if nobody had caught that.
    raise KeyboardInterrupt


def killed() -> None:
    # So does `kill -9`, and so does the kernel where memory runs out.
    os.kill(os.getpid(), signal.SIGKILL)


def crashes() -> None:
    # This is what a wrong pointer in native code does.
    ctypes.string_at(0)


def denied() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
    bytearray(2**31)


print(f"{sys.argv[1]}: counting rows", flush=True)
globals()[sys.argv[1]]()
