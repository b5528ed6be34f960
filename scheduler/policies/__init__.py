"""The scheduling policies, one file for each, and the registry that finds a policy by its name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from features.plugins import load_class
from scheduler.core.cluster import ClusterSpec
from scheduler.core.policy import NO_CLUSTER, NO_PREDICTORS, Policy, Predictors
from scheduler.core.settings import PolicySettings, UnknownPolicy

_WHERE = {
    "fifo": "scheduler.policies.fifo:Fifo",
    "fifo-skip": "scheduler.policies.fifo:FifoSkip",
    "easy": "scheduler.policies.easy:Easy",
    "slurm": "scheduler.slurm.twin.policy:Slurm",
    "pellucid": "scheduler.policies.pellucid.policy:Pellucid",
}


class Registry(Mapping[str, type[Policy]]):
    """Policy classes by name. The module of each is loaded when the policy is first asked for."""

    def __init__(self, where: Mapping[str, str]) -> None:
        self._where = dict(where)

    def __getitem__(self, name: str) -> type[Policy]:
        return load_class(self._where[name], Policy)

    def __iter__(self) -> Iterator[str]:
        return iter(self._where)

    def __len__(self) -> int:
        return len(self._where)


def _baselines() -> dict[str, str]:
    """Return where the policies of other systems (for comparison) are defined, by name; empty where
    the package `reproductions` is not installed."""
    try:
        found = import_module("reproductions.baselines").BASELINES
    except ModuleNotFoundError:
        return {}
    return {name: f"{kind.__module__}:{kind.__qualname__}" for name, kind in found.items()}


OURS = Registry(_WHERE)
POLICIES = Registry(_WHERE | _baselines())
MORE = "others' policies, lucid and sjf among them: pip install 'pellucid[reproductions]'"


def policy_named(name: str) -> type[Policy]:
    """Return the class of a policy, given by its name or as `module:Class`. Raise UnknownPolicy
    where there is none."""
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
    """Return a new policy, given by its name or as `module:Class`. Raise UnknownPolicy where there
    is none."""
    return policy_named(name)(settings, cluster, predictors)
