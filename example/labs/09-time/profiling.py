"""Measures a function in whichever process it runs; each of these is a decorator."""

import cProfile
import functools
import pstats
import sys
import time

import library


def timed(function):
    """Says how long each call takes."""

    @functools.wraps(function)
    def wrapper(*arguments):
        began = time.perf_counter()
        try:
            return function(*arguments)
        finally:
            print(f"{function.__name__}{arguments} took {time.perf_counter() - began:.2f} s")

    return wrapper


def by_function(function):
    """Has cProfile count the calls of every function, and their time."""

    @functools.wraps(function)
    def wrapper(*arguments):
        profile = cProfile.Profile()
        try:
            return profile.runcall(function, *arguments)
        finally:
            pstats.Stats(profile).strip_dirs().sort_stats("tottime").print_stats(6)

    return wrapper


def by_line(function):
    """Has line_profiler count the runs of every line of a function of the library, and their time."""

    @functools.wraps(function)
    def wrapper(*arguments):
        # It comes with the job, by --py-modules, and lets Python find line_profiler.
        import profilers  # noqa: F401
        from line_profiler import LineProfiler

        profiler = LineProfiler(getattr(library, "known", library.missing))
        try:
            return profiler.runcall(function, *arguments)
        finally:
            profiler.print_stats(sys.stdout)

    return wrapper


TOOLS = {"timed": timed, "cprofile": by_function, "lines": by_line}


def chosen(words):
    """Returns a decorator that applies the tools of these names, the first outermost."""

    def decorate(function):
        for word in reversed(words):
            function = TOOLS.get(word, lambda plain: plain)(function)
        return function

    return decorate
