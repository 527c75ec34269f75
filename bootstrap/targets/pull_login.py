"""Has pods pull with the login that this machine has for the mirror."""

from __future__ import annotations

from functools import partial

from bootstrap.instance import Instance
from bootstrap.kube.api import Kube
from bootstrap.registry.address import parse
from bootstrap.registry.login import login_for
from bootstrap.settings import Settings
from bootstrap.steps.pull_secret import PullSecret


def pull_secret(
    settings: Settings,
    instance: Instance,
    kube: Kube,
    registry: str,
    *,
    secret: str,
    needs: str,
    is_wanted: bool = True,
    is_for_others: bool = True,
    cluster_goes: bool = False,
) -> PullSecret:
    """Returns the step, as PullSecret has it, for `registry`, HOST/PATH or empty; `needs` comes before it."""
    address = parse(registry) if registry else None
    login = partial(login_for, address.host if address else "")
    return PullSecret(
        *(instance, kube, address, login, secret),
        is_wanted=is_wanted and settings.login_in_pods,
        is_for_others=is_for_others,
        cluster_goes=cluster_goes,
        needs=(needs,),
    )
