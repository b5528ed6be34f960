"""Builds decision cores; no other module does.

`simulate`, `compare`, `replay`, the service, its analyst and the follower of Slurm build their
cores here from a `CoreSpec`. They differ in clock, estimator and backend, and in nothing else. What
a `CoreSpec` cannot state cannot be switched on anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from scheduler.core.cluster import Cluster, ClusterSpec
from scheduler.core.core import Core
from scheduler.core.estimates import Estimator
from scheduler.core.policy import NO_PREDICTORS, Policy, Predictors
from scheduler.core.profiling import ProfilingStage, Scaling, Stage, WaitingStage
from scheduler.core.settings import (
    InvalidSettings,
    PolicySettings,
    ProfilingPartition,
    accepted_by,
    read,
)
from scheduler.policies import build, policy_named


@dataclass(frozen=True, slots=True)
class Stated:
    """Which parts of a `CoreSpec` a person wrote down; the others are defaults. Settings keep such
    a record themselves.

    Attributes:
        nodes: whether a cluster was given, with its virtual clusters and nodes.
        name: whether the cluster's name was given.
        policy: whether the policy was named.
    """

    nodes: bool = True
    name: bool = True
    policy: bool = True


ALL_STATED = Stated()


@dataclass(frozen=True, slots=True)
class CoreSpec:
    """All that a decision core is built from and that can be written down.

    Attributes:
        policy: name of the policy, or `module:Class`.
        settings: settings of the policy.
        profiling: the profiling partition, for policies that use one; None where there is none.
    """

    cluster: ClusterSpec
    policy: str
    settings: PolicySettings
    profiling: ProfilingPartition | None = None

    @classmethod
    def of(
        cls,
        cluster: ClusterSpec,
        policy: str = "pellucid",
        values: Mapping[str, Any] | None = None,
        profiling: ProfilingPartition | None = None,
    ) -> CoreSpec:
        """Return the specification of a core with the policy `policy`. `values` are the settings of
        the policy that differ from its defaults. Raise UnknownPolicy or InvalidSettings if the
        policy does not exist or a setting is not valid."""
        return cls(cluster, policy, settings_of(policy, values or {}), profiling)

    def with_settings(self, values: Mapping[str, Any] | None) -> CoreSpec:
        """Return the spec with `values` as the policy's settings, in the form in which a log holds
        them; unchanged if None. Raise InvalidSettings where the policy does not accept them.
        """
        if values is None:
            return self
        return replace(self, settings=recorded_settings(self.policy, values))

    @property
    def kind(self) -> type[Policy]:
        """Return the class of the policy."""
        return policy_named(self.policy)

    @property
    def lent(self) -> Mapping[str, int]:
        """Return the number of nodes that each virtual cluster lends to the profiling partition for
        good.

        Jobs run on these nodes only to be profiled, so they count in no virtual cluster's GPUs.
        """
        return lent_by(self, self.kind)

    @property
    def folded(self) -> bool:
        """Return whether the nodes named for profiling hold too large a share of the GPUs, under a
        policy that can do without them. Then these nodes stay in their virtual clusters, and
        profiles are measured where jobs run."""
        return _folds(self, self.kind)


def settings_of(policy: str, values: Mapping[str, Any]) -> PolicySettings:
    """Return the settings of a policy from plain values. Raise UnknownPolicy or InvalidSettings
    where policy or values are not accepted.
    """
    try:
        return read(accepted_by(policy_named(policy)), values)
    except InvalidSettings as error:
        raise InvalidSettings(f"policy {policy}: {error}") from None


def recorded_settings(policy: str, values: Mapping[str, Any]) -> PolicySettings:
    """Return the settings of a policy from plain values of a log. Settings that the policy no
    longer has are left out. Raise UnknownPolicy or InvalidSettings where policy or values are not
    accepted.
    """
    retired = accepted_by(policy_named(policy)).retired
    return settings_of(policy, {name: one for name, one in values.items() if name not in retired})


def assemble(
    spec: CoreSpec,
    estimator: Estimator,
    predictors: Predictors = NO_PREDICTORS,
    *,
    policy: Policy | None = None,
    stage: Stage | None = None,
) -> Core:
    """Return a new decision core: the cluster, the queues and the policy that `spec` describes.

    Args:
        estimator: estimator of durations.
        predictors: predictors that the policy may use.
        policy, stage: used instead of those that `spec` describes: for experiments on a policy, and
            for simulations in which profiles cost nothing.
    """
    policy = policy or policy_of(spec, predictors)
    stage = stage or stage_of(spec, policy, predictors)
    return Core(cluster_of(spec, policy), policy, estimator, profiling=stage)


def policy_of(spec: CoreSpec, predictors: Predictors = NO_PREDICTORS) -> Policy:
    """Return the policy of `spec`, with those of the predictors that it uses."""
    return build(spec.policy, spec.settings, spec.cluster, predictors)


def cluster_of(spec: CoreSpec, policy: Policy) -> Cluster:
    """Return the cluster of `spec`, with all GPUs free."""
    return Cluster(spec.cluster, lent_by(spec, policy))


def lent_by(spec: CoreSpec, policy: Policy | type[Policy]) -> Mapping[str, int]:
    """Return the number of nodes that each virtual cluster lends to the profiling partition for
    good under a policy.
    """
    if spec.profiling is None or not policy.capabilities.profiles or _folds(spec, policy):
        return {}
    return spec.profiling.nodes


def _folds(spec: CoreSpec, policy: Policy | type[Policy]) -> bool:
    partition = spec.profiling
    if partition is None or not policy.capabilities.profiles_waiting:
        return False
    if any(lent > spec.cluster.vcs.get(vc, 0) for vc, lent in partition.nodes.items()):
        return False  # no virtual cluster has so many: lending them is an error
    return _share(partition, spec.cluster) > partition.largest_share


def _share(partition: ProfilingPartition, cluster: ClusterSpec) -> float:
    """Return the share of a cluster's GPUs, 0 to 1, that is on the nodes of a profiling
    partition."""
    gpus: dict[str, list[int]] = {}
    for node in cluster.nodes():
        gpus.setdefault(node.vc, []).append(node.gpus)
    lent = sum(sum(gpus.get(vc, [])[-nodes:]) for vc, nodes in partition.nodes.items())
    return lent / max(1, cluster.gpus)


def folded_note(spec: CoreSpec) -> str | None:
    """Return a sentence on why nodes that are named for profiling are not lent, or None where they
    are lent, or none is named."""
    if not spec.folded or spec.profiling is None:
        return None
    count = sum(spec.profiling.nodes.values())
    percent = round(100 * _share(spec.profiling, spec.cluster), 1)
    named = "1 node is" if count == 1 else f"{count} nodes are"
    return (
        f"{named} named for profiling, {percent:g}% of the GPUs: too large a share of this cluster "
        f"for {spec.policy}, which uses them for ordinary jobs and learns profiles where jobs run "
        f"(profiling.largest_share is {spec.profiling.largest_share:g}; 1: always profile)."
    )


def stage_of(
    spec: CoreSpec, policy: Policy, predictors: Predictors = NO_PREDICTORS
) -> ProfilingStage | None:
    """Return the stage that profiles jobs, before they join a queue or while they wait in it, or
    None where no job is to be profiled."""
    partition = spec.profiling
    if not policy.capabilities.profiles or partition is None:
        return None
    if not (partition.profiles or policy.capabilities.profiles_waiting):
        return None  # every job would wait for a node that never comes
    scales = partition.scale_from and not _folds(spec, policy)
    kind = WaitingStage if policy.capabilities.profiles_waiting else ProfilingStage
    return kind(
        limit_s=partition.limit_s,
        max_gpus=partition.max_gpus,
        scaling=Scaling(partition.scale_from) if scales else None,
        forecast=policy.forecaster(predictors.arrivals),
        known_s=partition.carries_over_s,
    )
