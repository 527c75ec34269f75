"""Works out the fees for a day's orders, each in a task; COIN in the environment is the smallest coin."""

import argparse
import csv
import os
from pathlib import Path

import ray

FEE = 60


@ray.remote
def fee(order: str, cents: int) -> int:
    """Returns the fee for each coin of an order: the fee is shared among its coins."""
    coins = cents // int(os.environ.get("COIN", "1"))
    return FEE // coins


options = argparse.ArgumentParser()
options.add_argument("--day", default="monday")
options.add_argument("--shop", default="north")
given = options.parse_args()
with Path("orders", f"{given.day}.csv").open() as file:
    orders = {row["order"]: int(row["cents"]) for row in csv.DictReader(file) if row["shop"] == given.shop}
fees = ray.get([fee.remote(order, cents) for order, cents in orders.items()])
print(f"fees {dict(zip(orders, fees, strict=True))}")
