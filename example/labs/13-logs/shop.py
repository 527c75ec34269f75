"""The tills, which are actors that log, and the delivery."""

import logging

import ray
import redact

# This is for the driver. A worker gets classes and functions by value, and never imports this module.
redact.set_up()


@ray.remote(num_cpus=0)
class Till:
    def __init__(self, name, token):
        redact.set_up()
        # A logger of its own: its records say from which till they are.
        self.log = logging.getLogger(f"shop.till.{name}")
        self.token = token

    def sell(self, order, amount):
        message = f"order {order} for {amount}, paid with {self.token}"
        if amount == 280:
            self.log.error("refused: %s", message, extra={"order": order})
            return False
        self.log.info(message, extra={"order": order})
        return True


@ray.remote(num_cpus=0)
def deliver(sold):
    redact.set_up()
    logging.getLogger("shop.delivery").warning("%d parcels", sum(sold))
