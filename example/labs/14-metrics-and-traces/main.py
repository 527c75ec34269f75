"""Sells twenty things at two tills, counts that in metrics, and follows each sale through its tasks."""

import sys
import time

import ray
import tracing
from ray.util.metrics import Counter, Histogram

# Metrics have it as a tag, so that one run can be told from another.
RUN = sys.argv[1]
# Ray shows the metrics of a worker only while the worker lives.
SECONDS = 120


@ray.remote(num_cpus=0)
class Till:
    def __init__(self):
        self._sales = Counter("sales", description="Things that somebody wanted", tag_keys=("run", "outcome"))
        self._waits = Histogram(
            "waiting_seconds",
            description="How long a customer waited",
            boundaries=[1, 5, 10, 30, 60],
            tag_keys=("run",),
        )

    def sell(self, number, waited, context):
        with tracing.span("sell", context):
            outcome = "refused" if number % 5 == 0 else "paid"
            self._sales.inc(tags={"run": RUN, "outcome": outcome})
            self._waits.observe(waited, tags={"run": RUN})
            return ray.get(pack.remote(number, {}))


@ray.remote(num_cpus=0)
def pack(number, context):
    with tracing.span("pack", context):
        return f"parcel {number}"


collector = tracing.Collector.options(name="collector").remote()
ray.get(collector.spans.remote())  # It is there.
tills = [Till.remote() for _ in range(2)]
parcels = []
for number in range(20):
    with tracing.span("order", {}):
        # Nine in ten customers wait three seconds, the others forty.
        waited = 40 if number % 10 == 0 else 3
        parcels.append(ray.get(tills[number % 2].sell.remote(number, waited, tracing.current())))

print(f"sold {len(parcels)} things, the last is {parcels[-1]}")
tracing.show(ray.get(collector.spans.remote()))
sys.stdout.flush()
time.sleep(SECONDS)
