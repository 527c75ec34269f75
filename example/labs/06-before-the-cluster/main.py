"""Runs the pipeline on the cluster, a task for each file."""

from pathlib import Path

import pipeline
import ray

FILES = ["sales/morning.csv", "sales/noon.csv", "sales/evening.csv"]


@ray.remote
def total(file: str) -> dict[str, int]:
    sales = pipeline.load(Path(file))
    kept = pipeline.clean(sales)
    return pipeline.transform(kept)


if __name__ == "__main__":
    ray.init()
    print(f"sold {pipeline.aggregate(ray.get([total.remote(file) for file in FILES]))}")
