"""Adds up what a ferry takes for three crossings; each crossing is one remote task."""

import sys

import ray

# The lengths of the vehicles, in metres.
CROSSINGS = {"fjord": [4.2, 3.9, 11.0], "island": [4.5, 12.1], "strait": [412.0, 1180.0, 388.0]}


@ray.remote
def takings(crossing, lengths, port):
    if port:
        import pydevd_pycharm  # Ray's environment lacks it: runtime_env.yaml brings it.

        try:
            pydevd_pycharm.settrace("localhost", port=port, stdout_to_server=True, stderr_to_server=True)
        except ConnectionRefusedError:
            print(f"nobody listens at port {port}")
    euros = 0
    for length in lengths:
        metres = length / 100 if length > 100 else length
        euros += 50 if metres > 6 else 20
    return euros


# The port at which PyCharm listens, or our stand-in for it.
port = int(sys.argv[1]) if len(sys.argv) > 1 else None
futures = [takings.remote(crossing, lengths, port) for crossing, lengths in CROSSINGS.items()]
print(f"takings {dict(zip(CROSSINGS, ray.get(futures), strict=True))}")
