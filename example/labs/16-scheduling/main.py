"""Makes a book: scans its pages side by side, writes its index, prints its cover, and binds them."""

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy


@ray.remote(num_cpus=1)
def scan(page: int) -> bool:
    # It says whether it runs in a group; leave that as it is.
    return ray.util.get_current_placement_group() is not None


@ray.remote(num_cpus=1)
def index(pages: int) -> str:
    return f"an index of {pages} pages"


@ray.remote(num_cpus=1, resources={"printer": 1})
def cover() -> str:
    return "a cover"


@ray.remote(num_cpus=0)
def bind(*parts: str) -> str:
    return " and ".join(parts)


ray.init()
processors = int(ray.cluster_resources()["CPU"])
group = placement_group([{"CPU": 1}] * processors)
ray.get(group.ready(), timeout=120)
print(f"reserved {processors} processors for the scans", flush=True)

in_group = PlacementGroupSchedulingStrategy(group)
scans = ray.get([scan.options(scheduling_strategy=in_group).remote(page) for page in range(4)])
print(f"scanned {sum(scans)} of {len(scans)} pages in the group", flush=True)

book = bind.remote(index.remote(len(scans)), cover.remote())
# A driver that waits without a limit keeps what it has reserved until somebody stops it.
print(f"bound {ray.get(book, timeout=600)}")
