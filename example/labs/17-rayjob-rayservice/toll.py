"""The till of a toll bridge, as a Ray Serve application: /?axles=3 answers what a vehicle pays, in cents."""

from ray import serve
from starlette.requests import Request


@serve.deployment
class Till:
    def __init__(self, cents: dict[str, int]) -> None:
        self.cents = cents

    def __call__(self, request: Request) -> str:
        axles = int(request.query_params["axles"])
        rate = "car" if axles <= 2 else "lorry"
        price = self.cents[rate] * axles
        if "debug" in request.query_params:
            breakpoint()  # This request alone stops.
        return str(price)


def build(arguments: dict[str, dict[str, int]]) -> serve.Application:
    return Till.bind(arguments["cents"])
