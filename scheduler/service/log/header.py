"""What the decision core of a service is built from, kept as the first event of its log."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from sqlalchemy import insert

from scheduler.backends.events import Event, Kind
from scheduler.core.arrivals import BundleForecast
from scheduler.core.cluster import Cluster, ClusterSpec
from scheduler.core.core import Core
from scheduler.core.estimates import LiveEstimator
from scheduler.core.profiling import KNOWN_S, ProfilingStage, Scaling, WaitingStage
from scheduler.policies import POLICIES, build, policy_named
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import nodes

FOLLOWED = "slurm-followed"  # backend of a service that decides nothing itself


class GenesisError(ValueError):
    """A cluster or policy that a service cannot run; one line."""


def runnable() -> list[str]:
    """Names of the policies a service can run: those that neither see the future nor preempt."""
    return [name for name, kind in POLICIES.items() if not (kind.oracle or kind.preemptive)]


@dataclass(frozen=True, slots=True)
class Partition:
    """The profiling partition.

    Attributes:
        nodes: how many each virtual cluster lends for good.
        limit_s, max_gpus: how long a job is looked at, seconds, and the largest that is.
        scale_from: virtual cluster that lends one more node while many wait; "" = none.
        known_s: a job like one looked at less than so many seconds ago takes over its profile.
    """

    nodes: Mapping[str, int]
    limit_s: float = 200.0
    max_gpus: int = 8
    scale_from: str = ""
    known_s: float = KNOWN_S

    @property
    def looks(self) -> bool:
        """Whether it ever has a node; without, it only remembers profiles of watched runs."""
        return bool(self.nodes or self.scale_from)

    def stage(self, kind: type[ProfilingStage]) -> ProfilingStage:
        """The stage in front of the queues."""
        return kind(
            limit_s=self.limit_s,
            max_gpus=self.max_gpus,
            scaling=Scaling(self.scale_from) if self.scale_from else None,
            forecast=BundleForecast(None),
            known_s=self.known_s,
        )


@dataclass(frozen=True, slots=True)
class Genesis:
    """Cluster, policy, partition, clock.

    Attributes:
        start: first moment of the service's clock, seconds since the epoch.
        pace: seconds on that clock per real second: 1 but for the simulated backend.
        backend: name of the backend decisions take effect on.
        site: names the state folder, where its jobs are.
        version: of the code it was written by.
        names: of the nodes, in order; () = they are numbered.
    """

    cluster: ClusterSpec
    policy: str
    partition: Partition | None
    start: float
    pace: float = 1.0
    backend: str = "local"
    site: str = ""
    version: str = ""
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        kind = policy_named(self.policy)
        if kind.oracle or kind.preemptive:
            how = "is told the truth about durations" if kind.oracle else "stops running jobs"
            raise GenesisError(
                f"policy {self.policy!r} {how}; a service cannot run it, but: "
                + ", ".join(runnable())
            )

    def core(self, estimator: LiveEstimator | None = None) -> Core:
        """A new core. Its models come with BUNDLE events; an estimator may bring its histories."""
        policy = build(self.policy, gpu_memory_mib=self.cluster.gpu_memory_mib)
        partition = self.partition if policy.profiles else None
        stage = None
        if partition is not None and (partition.looks or policy.profiles_waiting):
            kind = WaitingStage if policy.profiles_waiting else ProfilingStage
            stage = partition.stage(kind)
        cluster = Cluster(self.cluster, partition.nodes if partition is not None else None)
        return Core(cluster, policy, estimator or LiveEstimator(), profiling=stage)

    def clock(self, wall: float) -> float:
        """The service's time when the time of day is `wall`; both seconds since the epoch."""
        return self.start + (wall - self.start) * self.pace

    def lent(self) -> frozenset[int]:
        """Nodes that the virtual clusters lend to the profiling partition for good.

        No job runs there but to be looked at: they count in no virtual cluster's GPUs.
        """
        if self.partition is None or not policy_named(self.policy).profiles:
            return frozenset()
        return frozenset(Cluster(self.cluster, self.partition.nodes).profiling.nodes())

    def nodes(self) -> list[dict[str, Any]]:
        """The rows of the table `nodes`, all open."""
        spec = self.cluster
        rows: list[dict[str, Any]] = []
        for vc, count in spec.vcs.items():
            for _ in range(count):
                node = len(rows)
                rows.append(
                    {
                        "node": node,
                        "name": self.names[node] if self.names else f"node{node:03d}",
                        "vc": vc,
                        "gpus": spec.gpus_per_node,
                        "gpu_type": spec.gpu_type,
                        "open": True,
                    }
                )
        return rows

    def body(self) -> dict[str, Any]:
        """As the body of a GENESIS event. (Lists, where the order of names matters.)"""
        spec, partition = self.cluster, self.partition
        return {
            "cluster": {
                "name": spec.name,
                "vcs": [[vc, nodes] for vc, nodes in spec.vcs.items()],
                "gpus_per_node": spec.gpus_per_node,
                "gpu_memory_mib": spec.gpu_memory_mib,
                "gpu_type": spec.gpu_type,
            },
            "policy": self.policy,
            "partition": None
            if partition is None
            else {
                "nodes": [[vc, nodes] for vc, nodes in partition.nodes.items()],
                "limit_s": partition.limit_s,
                "max_gpus": partition.max_gpus,
                "scale_from": partition.scale_from,
                "known_s": partition.known_s,
            },
            "start": self.start,
            "pace": self.pace,
            "backend": self.backend,
            "site": self.site,
            "version": self.version,
            **({"names": list(self.names)} if self.names else {}),
        }

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Genesis:
        """The inverse of `body`."""
        spec, partition = dict(body["cluster"]), body["partition"]
        spec["vcs"] = dict(spec["vcs"])
        if partition is not None:
            partition = Partition(**{**partition, "nodes": dict(partition["nodes"])})
        made = {"cluster": ClusterSpec(**spec), "partition": partition}
        return cls(**{**body, **made, "names": tuple(body.get("names", ()))})

    def differs(self, other: Genesis) -> str:
        """What of a cluster file no longer fits the log, in words; empty when nothing."""
        mine, theirs = self.body(), other.body()
        for part in ("cluster", "policy", "partition", "backend", "names"):
            was, is_now = mine.get(part), theirs.get(part)
            if (
                part == "partition"
                and was is None
                and other.partition
                and not other.partition.looks
            ):
                continue  # begun when a partition without nodes was none
            if was != is_now:
                return f"{part} was {was!r} when this database was made, is {is_now!r}"
        if self.site != other.site:
            return "this database was made with another --state-dir, where its jobs are kept"
        return ""


def establish(store: Store, genesis: Genesis) -> Genesis:
    """Begin the log, or find how it began. GenesisError when that was otherwise."""
    with store.writing() as connection:
        first = store.first_in(connection)
        if first is None:
            event = Event(Kind.GENESIS, genesis.start, body=genesis.body())
            store.append_in(connection, [event])
            connection.execute(insert(nodes), genesis.nodes())
            return genesis
    found = Genesis.from_body(first.body)
    if difference := found.differs(genesis):
        raise GenesisError(
            f"{difference}; a log goes on with what it began with: use another database"
        )
    return found


@cache
def code_version() -> str:
    """Version of this package, and a digest of the code that decides."""
    try:
        number = version("pellucid")
    except PackageNotFoundError:
        number = "0"
    root, digest = Path(__file__).parents[3], hashlib.sha256()
    for package in ("features", "models/bundle", "scheduler"):
        for path in sorted((root / package).rglob("*.py")):
            digest.update(path.relative_to(root).as_posix().encode())
            digest.update(path.read_bytes())
    return f"{number}+{digest.hexdigest()[:12]}"
