"""What is known of one job, as its viewer may know it: all that its explanation is made of.

Three readers make one: of the service's database, of a run's folder, of one look at Slurm. Nothing
here, and nothing that explains, asks any of them again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from scheduler.core.capacity import NodeNow
from scheduler.core.decisions import ANOTHER, Action, Decision, Reason
from scheduler.core.estimates import Description
from scheduler.core.phase import Phase
from scheduler.core.receipts import Receipt
from scheduler.explain.bound import Bound
from scheduler.explain.explanation import Standing, StartForecastRow
from scheduler.explain.job import JobRow, Line
from scheduler.explain.life import Held, JobFacts, life, waits_for_gpus
from scheduler.explain.words import ForecastKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What a record holds besides the decisions about a job.

    Attributes:
        bundles: names of the terms of each bundle.
        ends: end times of the jobs it shared GPUs with.
        order_values: what the queue ordered it and its blockers by.
        policy: policy that took the decisions.
        held: jobs that had GPUs while it waited for some, those of most GPU-time first.
        overtaken: later jobs that were given GPUs first, by why (`words.overtaking`).
        last: when the record ends: what had not ended then had waited until then.
    """

    bundles: Mapping[str, Description] = field(default_factory=dict)
    ends: Mapping[str, float | None] = field(default_factory=dict)
    order_values: Mapping[str, float] = field(default_factory=dict)
    policy: str = ""
    held: Sequence[Held] = ()
    overtaken: Mapping[str, int] = field(default_factory=dict)
    last: float | None = None


NOTHING_ELSE = Recorded()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stands:
    """Where a job stands at a moment, of a job that a service or a look at Slurm knows.

    Attributes:
        row: the job; now: the moment, seconds since the epoch.
        standing: its place in line; None: it is in none.
        nodes: every node, where the numbers of its last decision are to be those of now.
        forecast, promised: of its start: the latest, and the one made when it was submitted.
        bound: on its start, from limits; None where none is asked for (`needs_bound`).
        busy: what takes the decider long; "": nothing.
        alike: seconds that the latest jobs of its name and owner ran.
        receipt: of a job that runs, what its forecast end is made of; None: that is not kept.
    """

    row: JobRow
    now: float
    standing: Standing | None = None
    nodes: Sequence[NodeNow] = ()
    forecast: StartForecastRow | None = None
    promised: StartForecastRow | None = None
    bound: Bound | None = None
    busy: str = ""
    alike: Sequence[float] = ()
    receipt: Receipt | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dossier:
    """A job's facts, decisions, and what was recorded beside them.

    Attributes:
        facts: what became of it.
        own: the decisions about it, by sequence.
        joined: the decisions that put another job on its GPUs, by sequence.
        beside: what else was recorded.
        stands: where it stands now; None: of a run that is over.
    """

    facts: JobFacts
    own: Sequence[Decision]
    joined: Sequence[Decision] = ()
    beside: Recorded = NOTHING_ELSE
    stands: Stands | None = None

    @property
    def until(self) -> float | None:
        """Time up to which the story goes, seconds since the epoch. None: the record is
        complete.
        """
        return None if self.stands is None else max(self.stands.now, self.stands.row.submitted_at)


# --- for readers ---------------------------------------------------------------------------------


def facts_of(job: JobRow) -> JobFacts:
    """Return what has become of a job by its row."""
    ran = jct = None
    if job.ended_at is not None:
        jct = job.ended_at - job.submitted_at
        ran = None if job.started_at is None else job.ended_at - job.started_at
    return JobFacts(
        job_id=job.job_id,
        gpus=job.gpus,
        submit_time=job.submitted_at,
        duration_s=0.0,
        user=job.owner,
        vc=job.vc,
        name=job.name,
        start_time=job.started_at,
        end_time=job.ended_at,
        jct_s=jct,
        ran_s=ran,
        estimate_s=job.estimate_s,
        refused=job.phase == Phase.REFUSED,
        time_limit_s=job.time_limit_s,
    )


def decision_of(line: Line, job_id: str = "", partner: str = "") -> Decision:
    """Return the decision of a line, whose body may lack what its viewer may not see: of one about
    another's job little is there."""
    body = {"seq": line.seq, "vc": "", "job_id": job_id, **line.body}
    body.pop("event", None)
    if partner:
        body["partner"] = partner
    return Decision.from_body(body)


def joined_of(line: Line | None, job: JobRow) -> list[Decision]:
    """Return the decision that put another job on its GPUs, if there is one."""
    return [] if line is None else [decision_of(line, job.partner or ANOTHER, job.job_id)]


def spells_of(facts: JobFacts, own: Sequence[Decision], until: float) -> list[tuple[float, float]]:
    """Return from when to when a job has waited for GPUs, by the decisions about it."""
    return waits_for_gpus(life(facts, own, until))


def needs_nodes(job: JobRow, own: Sequence[Decision]) -> bool:
    """Return whether the numbers of a job's last decision are to be counted again as of now,
    for which its nodes are needed."""
    last = own[-1] if own and Phase(job.phase).waits else None
    if last is None or last.reason is Reason.BEHIND_HIGHER_PRIORITY:
        return False
    return last.action is Action.WAIT and last.free is not None


def needs_bound(job: JobRow, forecast: StartForecastRow | None) -> bool:
    """Return whether a job has a bound on its start from limits: it waits, is not held, and may
    start."""
    if not Phase(job.phase).waits or job.slurm is not None or job.hold:
        return False
    return forecast is None or forecast.estimate != ForecastKind.IMPOSSIBLE
