"""What a policy found out about a waiting job when it last evaluated it.

Findings are by-products of a decision: filled while it is made, and read when somebody asks why.
Nothing is decided again to explain it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from scheduler.core.decisions import Evidence, Reason


@dataclass(frozen=True, slots=True)
class Hold:
    """The cost to waiting jobs of holding GPUs for longer.

    While `gpus` of the `of` GPUs of a virtual cluster are held, work goes on there at that much
    less of its rate, and each job that is kept out starts later by that share of the time.

    Attributes:
        longer_s: seconds that the GPUs are held beyond what they would have been.
        gpus, of: GPUs that are held, and those of the virtual cluster.
        kept_out: waiting jobs that might have had them.
    """

    longer_s: float
    gpus: int
    of: int
    kept_out: int

    @property
    def costs_s(self) -> float:
        """Waiting of other jobs that holding these GPUs is predicted to cause in all, seconds."""
        return self.longer_s * self.kept_out * self.gpus / max(self.of, 1)


@dataclass(frozen=True, slots=True)
class Lack:
    """The first in line of a virtual cluster lacks whole nodes that are lent for profiling.

    Attributes:
        job_id: the first job in line.
        nodes, gpus: how many of the lent ones would be enough.
        hold: what it costs the job that they are lent.
        price: the factor that this cost counts with.
    """

    job_id: str
    gpus: int
    nodes: int
    hold: Hold
    price: float

    def pays(self, loses_s: float) -> bool:
        """Return whether the lack costs more than `loses_s`: the seconds of waiting that jobs
        to be profiled would lose if the nodes were given back."""
        return self.price * self.hold.costs_s > loses_s

    @property
    def evidence(self) -> Evidence:
        """The numbers of this lack, as evidence of a decision."""
        return (("missed_nodes", self.nodes), ("waits_longer_s", self.hold.costs_s))


@dataclass(frozen=True, slots=True)
class Partner:
    """The best of the runs that were considered as partners for a waiting job.

    Attributes:
        at: when; still so at that time where a later look found nothing changed.
        job_id: the run's.
        refused: the rule in the way; None when nothing was.
        speeds: predicted relative speed of the job and of the partner while they share; None when
            it did not come to a prediction.
        gain_s: seconds of total completion time that the pair would win; None where the policy does
            not count it.
        hold: what the pair would cost the jobs that wait; None where the policy does not count it.
    """

    at: float
    job_id: str
    refused: Reason | None = None
    speeds: tuple[float, float] | None = None
    gain_s: float | None = None
    hold: Hold | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesLookedAt:
    """Nodes of a virtual cluster by what keeps a waiting job from them; each counts once.

    A node would do that has as many GPUs free as the job takes there: all that it asks for, or of a
    job wider than a node the whole of it.

    Attributes:
        looked_at: other_type + closed + kept + busy + free.
        other_type: of another GPU type than it asks for.
        closed: too few of their GPUs take anything new.
        busy: too few of the others are free; `most_free` at most, on one node.
        kept: enough are, but too few without those that are kept for another job.
        free: that would do.
    """

    looked_at: int
    other_type: int = 0
    closed: int = 0
    busy: int = 0
    kept: int = 0
    free: int = 0
    most_free: int = 0


@dataclass(frozen=True, slots=True)
class Promise:
    """When GPUs will be reserved for a job that waits long, as the queue is now.

    Attributes:
        bound_s: seconds of waiting after which they are reserved at the latest.
        left_s: seconds from now until then; 0: the bound has passed.
        demand: GPUs asked for divided by GPUs of the cluster, if this makes the wait longer than
            the bound; 1: it does not.
        priced_s: seconds of waiting after which they are reserved if this costs other jobs little;
            None: never before the bound.
        soonest_s: seconds from now until that cost is computed the next time.
        costs_s: total waiting of other jobs that reserving was last predicted to cost, seconds;
            None: not computed.
    """

    bound_s: float
    left_s: float
    demand: float = 1.0
    priced_s: float | None = None
    soonest_s: float = 0.0
    costs_s: float | None = None

    def late(self, waited_s: float) -> Evidence:
        """Return as evidence how far a job that has waited `waited_s` seconds is from the time when
        GPUs are reserved for it. Return () before the bound.
        """
        bound_s = self.bound_s if self.priced_s is None else self.priced_s
        if waited_s <= bound_s:
            return ()
        found = [("bound_s", bound_s), ("bound_left_s", round(self.left_s, 1))]
        if self.demand > 1:
            found.append(("bound_times", round(self.demand, 2)))
        if self.costs_s is not None:
            found.append(("bound_costs_s", round(self.costs_s, 1)))
        return tuple(found)


class NotExamined(Enum):
    """What a job was not examined for."""

    NO_PAIR_PREDICTOR = auto()  # nothing predicts how pairs would run
    EXCLUSIVE = auto()  # GPUs are not shared here
    UNMEASURED = auto()  # no pairs were measured in the way that GPUs are shared here
    PACKING_OFF = auto()  # few jobs are expected
    TOO_LARGE = auto()  # to share
    NO_PROFILE = auto()
    SEARCHES_SPENT = auto()  # on others, in the last pass


@dataclass(frozen=True, slots=True)
class Findings:
    """What was found out about a waiting job when it was last evaluated."""

    partner: Partner | None = None
    type_costs: Evidence = ()
    not_examined: tuple[NotExamined, ...] = ()
