"""The log header: what the decision core of a service is built from. It is the first event of the
log.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from sqlalchemy import insert

from features.codec import Json
from scheduler.assembly import CoreSpec, assemble, policy_of
from scheduler.backends.events import Event, Kind
from scheduler.core.cluster import Cluster, ClusterSpec, NodeGroup
from scheduler.core.core import Core
from scheduler.core.estimates import LiveEstimator
from scheduler.core.policy import Policy
from scheduler.core.settings import InvalidSettings, ProfilingPartition, UnknownPolicy
from scheduler.policies import POLICIES
from scheduler.service.log.nodes import NodeRecord, as_begun
from scheduler.service.log.store import chain
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import nodes

FOLLOWED = "slurm-followed"  # backend of a service that decides nothing itself


class LogHeaderError(ValueError):
    """Raised for a cluster or policy that a service cannot run. The message is one line."""


def runnable(*, follows: bool = False) -> list[str]:
    """Return the names of the policies that a service can run. `follows`: the service follows a
    Slurm and decides nothing itself, so that further policies are possible.
    """
    return [name for name, kind in POLICIES.items() if not _unfit(kind, follows)]


def _unfit(kind: type[Policy], follows: bool) -> str:
    """Return why a service cannot run a policy, as words that follow the policy's name ("stops
    running jobs"); "" when it can.
    """
    can = kind.capabilities
    if can.oracle:
        return "knows the true durations"
    if can.preemptive:
        return "stops running jobs"
    if can.twin and not follows:  # it is made for each look; nodes drained do not reach it
        return "only foresees what another scheduler decides"
    return ""


def servable(spec: CoreSpec, *, follows: bool = False) -> Policy:
    """Return the policy of `spec`. Raise LogHeaderError where a service cannot run it, and
    InvalidSettings where its settings do not fit the cluster.
    """
    if how := _unfit(spec.kind, follows):
        can = ", ".join(runnable(follows=follows))
        raise LogHeaderError(f"policy {spec.policy!r} {how}; a service cannot run it, but: {can}")
    return policy_of(spec)


@dataclass(frozen=True, slots=True)
class LogHeader:
    """What the core is built from, and the service's clock.

    Attributes:
        spec: cluster, policy and settings.
        start: first moment of the service's clock, seconds since the epoch.
        pace: seconds on that clock per real second: 1 but for the simulated backend.
        backend: name of the backend that carries out decisions.
        site: name of the state folder in which the log's jobs run.
        names: names of the nodes, in order; () = they are numbered.
    """

    spec: CoreSpec
    start: float
    pace: float = 1.0
    backend: str = "local"
    site: str = ""
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        servable(self.spec, follows=self.backend == FOLLOWED)

    def core(self, estimator: LiveEstimator | None = None) -> Core:
        """Return a new core without models; BUNDLE events give it those. `estimator`: one that has
        learned from past jobs; None: a new one.
        """
        core = assemble(self.spec, estimator or LiveEstimator())
        core.keeps_receipts = True
        return core

    def clock(self, wall: float) -> float:
        """Return the time on the service's clock when the time of day is `wall`; both are seconds
        since the epoch.
        """
        return self.start + (wall - self.start) * self.pace

    def lent(self) -> frozenset[int]:
        """Return the numbers of the nodes that virtual clusters lend to the profiling partition for
        good.

        Jobs run on these nodes only to be profiled, so they count in no virtual cluster's GPUs.
        """
        return frozenset(Cluster(self.spec.cluster, self.spec.lent).profiling.nodes())

    def nodes(self) -> list[NodeRecord]:
        """Return a record of each node with which the log begins, all open."""
        return as_begun(self.spec.cluster, self.lent(), self.names)

    def body(self) -> Json:
        """Return the header as the body of a HEADER event. Mappings in which order matters are
        stored as lists.
        """
        spec, partition = self.spec.cluster, self.spec.profiling
        return {
            "cluster": {
                "name": spec.name,
                "vcs": [[vc, nodes] for vc, nodes in spec.vcs.items()],
                "gpus_per_node": spec.gpus_per_node,
                "gpu_memory_mib": spec.gpu_memory_mib,
                "gpu_type": spec.gpu_type,
                **({"groups": groups} if (groups := _groups_body(spec)) else {}),
            },
            "policy": self.spec.policy,
            "settings": self.spec.settings.plain(),
            "partition": None
            if partition is None
            else {**partition.plain(), "nodes": [[vc, n] for vc, n in partition.nodes.items()]},
            "start": self.start,
            "pace": self.pace,
            "backend": self.backend,
            "site": self.site,
            **({"names": list(self.names)} if self.names else {}),
        }

    def shape(self) -> Json:
        """Return the body without the clock, which differs at each start, for comparison with
        another header.
        """
        once = ("start", "pace")
        return {name: value for name, value in self.body().items() if name not in once}

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> LogHeader:
        """Return the header from its `body`. Raise UnknownPolicy or InvalidSettings where policy or
        settings are not available now, and LogHeaderError for a body that no version wrote.
        """
        try:
            return cls._of_body(body)
        except (UnknownPolicy, InvalidSettings):
            raise
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            why = f"{type(error).__name__}: {error}"
            raise LogHeaderError(f"the first event of the log cannot be read: {why}") from None

    @classmethod
    def _of_body(cls, body: Mapping[str, Any]) -> LogHeader:
        rest = dict(body)
        rest.pop("version", None)  # of the code that wrote it; until 0.1
        cluster, partition = dict(rest.pop("cluster")), rest.pop("partition")
        cluster["vcs"] = dict(cluster["vcs"])
        cluster["groups"] = {
            vc: tuple(
                NodeGroup(
                    gpu_type=kind,
                    nodes=count,
                    gpus_per_node=gpus,
                    gpu_memory_mib=mib,
                    names=tuple(names),
                )
                for kind, count, gpus, mib, names in has
            )
            for vc, has in cluster.get("groups", ())
        }
        if partition is not None:
            partition = ProfilingPartition(**{**partition, "nodes": dict(partition["nodes"])})
        policy, settings = rest.pop("policy"), rest.pop("settings", {})
        spec = CoreSpec.of(ClusterSpec(**cluster), policy, profiling=partition)
        spec = spec.with_settings(settings)
        return cls(**{**rest, "spec": spec, "names": tuple(rest.get("names", ()))})


def _groups_body(spec: ClusterSpec) -> list[Any]:
    """Return the node groups by virtual cluster as plain values: for each group a list of GPU
    type, nodes, GPUs per node, GPU memory (MiB) and names. Empty where all nodes are alike."""
    return [
        [
            vc,
            [[g.gpu_type, g.nodes, g.gpus_per_node, g.gpu_memory_mib, list(g.names)] for g in has],
        ]
        for vc, has in spec.groups.items()
    ]


def establish(store: Store, header: LogHeader) -> LogHeader:
    """Begin an empty log with `header`. Return the header that holds: that of the log, which may
    state other nodes and settings, or for a service that follows a Slurm, `header`, which is
    recorded once more where it differs. Raise LogHeaderError where the log's jobs are on another
    backend, or in another state folder.
    """
    with store.writing() as connection:
        first = store.first_in(connection)
        if first is None:
            event = Event(Kind.HEADER, header.start, body=header.body())
            store.append_in(connection, [event])
            rows = [record.row() for record in header.nodes()]
            connection.execute(insert(nodes), rows)
            if header.backend == FOLLOWED:
                chain.cover(connection, nodes, rows)
            return header
    found = LogHeader.from_body(first.body)
    if found.backend == header.backend == FOLLOWED and found.site == header.site:
        # nothing took effect: what it is drawn with may be otherwise from now on
        if followed_header(store).shape() == header.shape():
            return header
        with store.writing() as connection:
            store.append_in(connection, [Event(Kind.HEADER, header.start, body=header.body())])
        return header
    if found.backend != header.backend:
        raise LogHeaderError(
            f"backend was {found.backend!r} when this database was made, is {header.backend!r}; "
            "its jobs are on the other: use another database"
        )
    if found.site != header.site:
        raise LogHeaderError(
            "this database was made with another --state-dir, where its jobs are kept: use that "
            "one, or another database"
        )
    return found


def followed_header(store: Store) -> LogHeader:
    """Return the last header of the log of a service that follows a Slurm. Raise LogHeaderError
    where the log is empty.
    """
    headers = store.read(kinds=[Kind.HEADER])
    if not headers:
        raise LogHeaderError("no service has begun on this database")
    return LogHeader.from_body(headers[-1].body)


def service_clock(store: Store) -> Callable[[], float]:
    """Return a function that returns the time with which decisions are dated, seconds since the
    epoch: the wall clock, or the clock of a simulation. While the log is empty it is the wall
    clock.
    """
    header: LogHeader | None = None

    def now() -> float:
        nonlocal header
        if header is None:
            first = store.read(limit=1, kinds=[Kind.HEADER])
            if not first:
                return store.clock.now()
            header = LogHeader.from_body(first[0].body)
            store.go_on()
        return header.clock(store.clock.now())

    return now


@cache
def code_version() -> str:
    """Return the version of this package, with a digest of the code that decides."""
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
