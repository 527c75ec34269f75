"""Sells a day's orders at two tills; `shop.py` has what runs on the workers."""

import logging
import secrets

import ray
import shop

ORDERS = [{"order": number, "amount": 40 * number} for number in range(1, 11)]

logging_config = ray.LoggingConfig(encoding="JSON", log_level="INFO", additional_log_standard_attrs=["name"])
ray.init(logging_config=logging_config)
log = logging.getLogger("shop.main")
token = "tok_" + secrets.token_hex(8)
log.warning("opening with the token %s", token)

tills = [shop.Till.remote(name, token) for name in ("north", "south")]
sold = [tills[number % 2].sell.remote(**order) for number, order in enumerate(ORDERS)]
ray.get(shop.deliver.remote(ray.get(sold)))
log.warning("sold %d of %d", sum(ray.get(sold)), len(ORDERS))
