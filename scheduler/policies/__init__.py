"""One file per policy, and the registry that finds them by name."""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module

from scheduler.core.cluster import ClusterSpec
from scheduler.core.policy import NO_CLUSTER, NO_PREDICTORS, Policy, Predictors
from scheduler.core.quirks import NONE, Quirks
from scheduler.core.settings import PolicySettings
from scheduler.policies.easy import Easy
from scheduler.policies.fifo import Fifo, FifoSkip
from scheduler.policies.horus import Horus
from scheduler.policies.lucid import Lucid
from scheduler.policies.pellucid.policy import Pellucid
from scheduler.policies.qssf import Qssf
from scheduler.policies.sjf import Sjf
from scheduler.policies.srtf import Srtf
from scheduler.policies.tiresias import Tiresias

POLICIES: dict[str, type[Policy]] = {
    policy.name: policy
    for policy in (Fifo, FifoSkip, Easy, Sjf, Srtf, Qssf, Tiresias, Horus, Lucid, Pellucid)
}


class UnknownPolicy(ValueError):
    """No policy of that name."""


def policy_named(name: str) -> type[Policy]:
    """The class of a policy: one of ours by its name, or `module:Class`.

    A module is looked for where `python -m` would: installed, or in the current folder.

    Raises UnknownPolicy.
    """
    if name in POLICIES:
        return POLICIES[name]
    if ":" in name:
        return _imported(name)
    raise UnknownPolicy(f"no policy {name!r}; there are: {', '.join(POLICIES)}, or module:Class")


def build(
    name: str,
    settings: PolicySettings | None = None,
    cluster: ClusterSpec = NO_CLUSTER,
    predictors: Predictors = NO_PREDICTORS,
    quirks: Quirks = NONE,
) -> Policy:
    """A policy by name. Raises UnknownPolicy."""
    return policy_named(name)(settings, cluster, predictors, quirks)


@cache
def _imported(name: str) -> type[Policy]:
    module, _, attribute = name.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UnknownPolicy(f"policy {name!r}: {error}") from None
    if not (isinstance(found, type) and issubclass(found, Policy)):
        raise UnknownPolicy(f"policy {name!r}: is no subclass of scheduler.core.policy.Policy")
    return found
