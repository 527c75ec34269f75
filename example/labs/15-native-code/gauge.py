"""Calls gauge.c, which `cc` has made libgauge.so of."""

import ctypes
from pathlib import Path


def smooth(readings, count, width=1):
    """Smooths a list in place; `readings` is None of a gauge that was broken."""
    library = ctypes.CDLL(str(Path(__file__).with_name("libgauge.so")))
    library.smooth.argtypes = [ctypes.POINTER(ctypes.c_double), ctypes.c_long, ctypes.c_long]
    library.smooth.restype = None
    if readings is None:
        library.smooth(None, count, width)
        return None
    values = (ctypes.c_double * count)(*readings)
    library.smooth(values, count, width)
    return [round(value, 2) for value in values]
