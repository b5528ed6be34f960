"""One file per policy, and the registry that finds them by name: these, and the baselines."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from features.plugins import load_class
from scheduler.core.cluster import ClusterSpec
from scheduler.core.policy import NO_CLUSTER, NO_PREDICTORS, Policy, Predictors
from scheduler.core.settings import PolicySettings, UnknownPolicy
from scheduler.policies.easy import Easy
from scheduler.policies.fifo import Fifo, FifoSkip
from scheduler.policies.pellucid.policy import Pellucid
from scheduler.policies.slurm.policy import Slurm


def _baselines() -> dict[str, type[Policy]]:
    """Other systems' policies, loaded by name and imported by nobody; none without that package."""
    try:
        return cast("dict[str, type[Policy]]", import_module("reproductions.baselines").BASELINES)
    except ModuleNotFoundError:
        return {}


OURS: dict[str, type[Policy]] = {
    policy.name: policy for policy in (Fifo, FifoSkip, Easy, Slurm, Pellucid)
}
POLICIES = OURS | _baselines()
MORE = "others' policies, lucid and sjf among them: pip install 'pellucid[reproductions]'"


def policy_named(name: str) -> type[Policy]:
    """The class of a policy: one of ours by its name, or `module:Class`. Raises UnknownPolicy."""
    if name in POLICIES:
        return POLICIES[name]
    if ":" not in name:
        there = ", ".join(POLICIES)
        more = "" if POLICIES.keys() > OURS.keys() else f"; {MORE}"
        raise UnknownPolicy(f"no policy {name!r}; there are: {there}, or module:Class{more}")
    try:
        return load_class(name, Policy)
    except ValueError as error:
        raise UnknownPolicy(f"policy {error}") from None


def build(
    name: str,
    settings: PolicySettings | None = None,
    cluster: ClusterSpec = NO_CLUSTER,
    predictors: Predictors = NO_PREDICTORS,
) -> Policy:
    """A policy by name. Raises UnknownPolicy."""
    return policy_named(name)(settings, cluster, predictors)
