"""Prints what cProfile has written of the driver: the functions in which it spent its time."""

import pstats
import sys

pstats.Stats(sys.argv[1]).strip_dirs().sort_stats("tottime").print_stats(6)
# The lines of Ray's own modules that begin and end a wait:
pstats.Stats(sys.argv[1]).strip_dirs().print_stats(r"\bworker\.py.*\((get|wait)\)")
