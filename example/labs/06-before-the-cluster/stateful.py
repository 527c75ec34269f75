"""Does what main.py does; here the task is to become an actor, so that its state can be seen."""

from pathlib import Path

import pipeline
import ray
from main import FILES


@ray.remote
def total(file: str) -> dict[str, int]:
    sales = pipeline.load(Path(file))
    kept = pipeline.clean(sales)
    return pipeline.transform(kept)


ray.init()
print(f"sold {pipeline.aggregate(ray.get([total.remote(file) for file in FILES]))}")
