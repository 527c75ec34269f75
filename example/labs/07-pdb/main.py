"""Weighs the parcels at a post office, and says what they cost; each is one remote task."""

import ray

GRAMS = {"g": 1, "kg": 1000, "lb": 454}
PARCELS = [("tea", 250, "g"), ("rope", 2, "kg"), ("books", 3, "Kg"), ("nails", 1, "lb")]


@ray.remote
def weigh(parcels):
    weights = {name: amount * GRAMS.get(unit, 1) for name, amount, unit in parcels}
    breakpoint()
    return sum(weights.values())


@ray.remote
def charge(grams):
    cents = 200 + grams // 100 * 5
    ray.util.pdb.set_trace()  # What the articles write.
    return cents


print(f"postage {ray.get(charge.remote(weigh.remote(PARCELS)))}", flush=True)
