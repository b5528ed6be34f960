"""What a policy found out about a waiting job when it last considered the job.

Findings are by-products: they are filled while a decision is made, and read when a user asks why.
No decision is repeated to explain it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from scheduler.core.decisions import Evidence, Reason


@dataclass(frozen=True, slots=True)
class Hold:
    """The cost, to waiting jobs, of holding GPUs for longer.

    While `gpus` of a virtual cluster's `of` GPUs are held, the rest of its work goes on at a rate
    that is lower by this share. Each job that is kept out starts later by this share of `longer_s`.

    Attributes:
        longer_s: seconds for which the GPUs are held longer than otherwise.
        gpus, of: number of GPUs that are held, and of all GPUs of the virtual cluster.
        kept_out: number of waiting jobs that might have got them.
    """

    longer_s: float
    gpus: int
    of: int
    kept_out: int

    @property
    def costs_s(self) -> float:
        """Total seconds of waiting that holding these GPUs is predicted to cause for other jobs."""
        return self.longer_s * self.kept_out * self.gpus / max(self.of, 1)


@dataclass(frozen=True, slots=True)
class Lack:
    """The need of the first job in line of a virtual cluster for whole nodes that are lent for
    profiling.

    Attributes:
        job_id: the first job in line.
        nodes, gpus: how many of the lent nodes and GPUs would be enough.
        hold: the cost of lending them, as waiting.
        price: the factor by which this cost is multiplied before it is compared.
    """

    job_id: str
    gpus: int
    nodes: int
    hold: Hold
    price: float

    def pays(self, loses_s: float) -> bool:
        """Return whether the lack costs more than `loses_s`: the seconds of waiting that giving the
        nodes back would cost the jobs that are to be profiled."""
        return self.price * self.hold.costs_s > loses_s

    @property
    def evidence(self) -> Evidence:
        """The numbers of this lack, as evidence of a decision."""
        return (("missed_nodes", self.nodes), ("waits_longer_s", self.hold.costs_s))


@dataclass(frozen=True, slots=True)
class Partner:
    """The best of the runs that the policy considered as partners for a waiting job.

    Attributes:
        at: when the policy considered it, or last found that nothing had changed since.
        job_id: the job of the run.
        refused: the rule that forbids the pair; None when none does.
        speeds: predicted speeds of the job and of the partner while they share, each over its speed
            alone; None when they were not predicted.
        gain_s: seconds of total completion time that the pair would save; None where the policy
            does not compute it.
        hold: what the pair would cost waiting jobs; None where the policy does not compute it.
    """

    at: float
    job_id: str
    refused: Reason | None = None
    speeds: tuple[float, float] | None = None
    gain_s: float | None = None
    hold: Hold | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesLookedAt:
    """Number of nodes of a virtual cluster, by what keeps a waiting job from them; each node counts
    once.

    A node suits the job if as many GPUs are free on it as the job takes there: all that it asks for
    or, of a job larger than a node, the whole node.

    Attributes:
        looked_at: all nodes: other_type + closed + kept + busy + free.
        other_type: nodes of another GPU type than the job asks for.
        closed: nodes on which too few GPUs are open to new jobs.
        busy: nodes on which too few of the open GPUs are free.
        most_free: largest number of GPUs that are free for this job on one node.
        kept: nodes with enough free GPUs, but too few without those that are kept for another job.
        free: nodes that suit the job.
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
    """When GPUs will be reserved for a job that waits long, if the queue stays as it is.

    Attributes:
        bound_s: seconds of waiting after which GPUs are reserved at the latest.
        left_s: seconds from now until then; 0: the bound has passed.
        demand: GPUs that all jobs ask for, divided by GPUs of the cluster, if this makes the wait
            longer than the bound; 1: it does not.
        priced_s: seconds of waiting after which GPUs are reserved if this costs other jobs little;
            None: they are never reserved before the bound.
        soonest_s: seconds from now until that cost is computed the next time.
        costs_s: total waiting that reserving was last predicted to cost other jobs, seconds; None:
            not computed.
    """

    bound_s: float
    left_s: float
    demand: float = 1.0
    priced_s: float | None = None
    soonest_s: float = 0.0
    costs_s: float | None = None

    def late(self, waited_s: float) -> Evidence:
        """Return as evidence how long a job that has waited `waited_s` seconds still waits until
        GPUs are reserved for it. Return () before its bound (the wait after which they should be)
        has passed."""
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
    """Why a waiting job was not examined as one of a pair of jobs that share GPUs."""

    NO_PAIR_PREDICTOR = auto()  # nothing predicts how pairs would run
    EXCLUSIVE = auto()  # GPUs are not shared here
    UNMEASURED = auto()  # no pairs were measured in the way that GPUs are shared here
    PACKING_OFF = auto()  # few jobs are expected
    TOO_LARGE = auto()  # to share
    NO_PROFILE = auto()
    SEARCHES_SPENT = auto()  # on others, in the last pass


@dataclass(frozen=True, slots=True)
class Findings:
    """What the policy found out about a waiting job when it last considered the job."""

    partner: Partner | None = None
    type_costs: Evidence = ()
    not_examined: tuple[NotExamined, ...] = ()
