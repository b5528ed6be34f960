"""The worlds that are audited: the simulated ones are here, a service is in `live`.

All simulated ones need the shared data, those of the synthetic trace for its profiles and pairs.
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
    """A world, and the policy that decides in it.

    Attributes:
        made: from the folder of shared data and a seed.
        drains: share of the nodes that are closed, others day by day.
    """

    name: str
    made: Callable[[Path, int], Scenario]
    policy: str = "pellucid"
    drains: float = 0.0


def _reported(name: str) -> Callable[[Path, int], Scenario]:
    """Return a function that makes the scenario with this name from the part `reported` of
    `worlds.yaml`, on which no parameter was chosen. Durations are predicted from histories alone.
    """
    return lambda data, seed: scenario(name, read_worlds()["reported"][name], data, seed, "own")


def _refitted(data: Path, seed: int) -> Scenario:
    """Return the world of Venus' users on four nodes, with own predictions. The fits of their
    model are compared.
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
    """Closes nodes and opens them again, other ones each day.

    Args:
        share: share of the nodes that are closed.
    """

    def __init__(self, core: Core, share: float, seed: int):
        self.core, self.share, self.seed = core, share, seed
        self._day = -1

    def passed(self, now: float) -> None:
        """Called as time passes: close other nodes on a new day."""
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
