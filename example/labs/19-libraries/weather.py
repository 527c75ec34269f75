"""What Ray's libraries run in their workers; none of it has a breakpoint."""


def convert(batch):
    """Returns Celsius for one batch of readings, which Ray Data hands over as arrays."""
    celsius = (batch["degrees"] - 32) * 5 / 9
    return {"celsius": celsius}


def objective(config):
    """Returns how far a threshold is from the number of warm days that somebody has counted."""
    warm = [celsius for celsius in config["celsius"] if celsius >= config["threshold"]]
    off = len(warm) - config["counted"]
    return {"off": off}


def train_loop(config):
    """Adds up one worker's part of the days: each of two workers has half of them."""
    from ray import train  # The workers of Data and Tune do without.

    rank = train.get_context().get_world_rank()
    half = len(config["celsius"]) // 2
    part = config["celsius"][rank * half : (rank + 1) * half]
    return sum(part)
