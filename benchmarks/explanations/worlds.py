"""The simulated worlds (clusters with their jobs) that are audited; a service is in `live`.

All of them need the shared data; those of the synthetic trace need its profiles and pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from benchmarks.explanations.stable import Refitted
from benchmarks.worlds.make import read_worlds, scenario
from pipeline.worlds.scenario import Scenario
from scheduler.core.core import Core
from scheduler.core.estimates import Estimator

DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class AuditWorld:
    """A simulated cluster with its jobs, and the policy that decides in it.

    Attributes:
        made: function that makes the scenario from the folder of shared data and a seed.
        drains: share of the nodes that are closed; which ones changes from day to day.
    """

    name: str
    made: Callable[[Path, int], Scenario]
    policy: str = "pellucid"
    drains: float = 0.0


def _reported(name: str) -> Callable[[Path, int], Scenario]:
    """Return a function that makes the scenario with this name from the part `reported` of
    `worlds.yaml`, on which no parameter was chosen. Its durations are predicted from histories
    alone.
    """
    return lambda data, seed: scenario(name, read_worlds()["reported"][name], data, seed, "own")


def _refitted(data: Path, seed: int) -> Scenario:
    """Return a scenario with users of the Venus trace on four nodes, whose durations a model
    predicts that is refitted as jobs end. The fits are compared.
    """
    made = _reported("venus-four-nodes")(data, seed)
    made.estimators = lambda policy: (
        Refitted(seed=seed) if policy.capabilities.estimates else Estimator()
    )
    return made


WORLDS = (
    AuditWorld("synthetic-sweeps", _reported("synthetic-sweeps")),
    AuditWorld("synthetic-drained", _reported("synthetic-long"), drains=0.25),
    AuditWorld("synthetic-fifo", _reported("synthetic-long"), policy="fifo"),
    AuditWorld("venus-busy-open", _reported("venus-busy-open")),
    AuditWorld("venus-unisolated-busy", _reported("venus-unisolated-busy")),
    AuditWorld("venus-four-nodes", _refitted),
    AuditWorld("philly-overload", _reported("philly-overload")),
    AuditWorld("openb-overload-bare", _reported("openb-overload-bare")),
)


class Drains:
    """Closes a share of the nodes, and each day opens them again and closes others.

    Args:
        share: share of the nodes that are closed.
    """

    def __init__(self, core: Core, share: float, seed: int):
        self.core, self.share, self.seed = core, share, seed
        self._day = -1

    def passed(self, now: float) -> None:
        """Close other nodes if a new day has begun by `now`. Called whenever simulated time
        passes.
        """
        day = int(now // DAY_S)
        if not self.share or day == self._day:
            return
        self._day = day
        core, random = self.core, Random(f"{self.seed}/{day}")
        for pool in core.cluster.pools.values():
            nodes = sorted(pool.nodes())
            shut = set(random.sample(nodes, round(self.share * len(nodes))))
            for node in nodes:
                if pool.is_open(node) == (node in shut):
                    core.nodes.set_open(node, node not in shut)
