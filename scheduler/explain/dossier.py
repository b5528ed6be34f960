"""All that is known of one job, as far as its viewer may know it. The explanation of the job is
made from this alone.

Three readers make such a dossier: from the service's database, from the folder of a simulation run,
and from one look at Slurm (one reading of its state). Nothing that explains reads any of these
again.
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
    """What a log or run folder records about a job besides the decisions about it.

    Attributes:
        bundles: maps the digest of each bundle of models to the description of its terms.
        ends: end times of the jobs with which it shared GPUs, by id.
        order_values: the keys by which the queue sorted it and its blockers, by job id.
        policy: name of the policy that took the decisions.
        held: jobs that had GPUs while it waited for some, those with most GPU-time first.
        overtaken: maps each reason (`words.overtaking`) to the number of later jobs that got GPUs
            first for it.
        last: time when the record ends; jobs that had not ended by then are counted as waiting or
            running until then.
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
    """The present state of a job that a service, or a look at Slurm (one reading of its state),
    knows.

    Attributes:
        row: what is stored of the job.
        now: the present time, seconds since the epoch.
        standing: its place in its queue; None: it is in none.
        nodes: every node, if the numbers of its last decision are to be counted again as of now.
        forecast, promised: forecasts of its start: the latest, and the one made when it was
            submitted.
        bound: its latest start by time limits; None where none is needed (`needs_bound`).
        busy: what keeps the decider process busy; "": nothing.
        alike: seconds that the latest jobs with its name and owner ran.
        receipt: for a running job, the inputs of its forecast end; None: they are not kept.
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
    """A job's recorded times, the decisions about it, and what else was recorded.

    Attributes:
        facts: the job's recorded times.
        own: the decisions about the job, in the order in which they were taken.
        joined: the decisions that put another job on its GPUs, in the order in which they were
            taken.
        beside: what else was recorded.
        stands: its present state; None for a simulation run that is over.
    """

    facts: JobFacts
    own: Sequence[Decision]
    joined: Sequence[Decision] = ()
    beside: Recorded = NOTHING_ELSE
    stands: Stands | None = None

    @property
    def until(self) -> float | None:
        """Time up to which the job's story goes, seconds since the epoch. None: the record is
        complete."""
        return None if self.stands is None else max(self.stands.now, self.stands.row.submitted_at)


# --- for readers ---------------------------------------------------------------------------------


def facts_of(job: JobRow) -> JobFacts:
    """Return the recorded times of a job from its stored row. `duration_s` is 0: a row has none."""
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
    """Return the decision that a line of the log describes. Fields that the viewer may not see are
    missing in its body, above all in a decision about another user's job. `job_id` stands in for a
    missing id; `partner`, if given, replaces the partner."""
    body = {"seq": line.seq, "vc": "", "job_id": job_id, **line.body}
    body.pop("event", None)
    if partner:
        body["partner"] = partner
    return Decision.from_body(body)


def joined_of(line: Line | None, job: JobRow) -> list[Decision]:
    """Return the decision that put another job on the job's GPUs, as a list of one; [] if there is
    none."""
    return [] if line is None else [decision_of(line, job.partner or ANOTHER, job.job_id)]


def spells_of(facts: JobFacts, own: Sequence[Decision], until: float) -> list[tuple[float, float]]:
    """Return the (start, end) times between which a job waited for GPUs, by the decisions
    about it."""
    return waits_for_gpus(life(facts, own, until))


def needs_nodes(job: JobRow, own: Sequence[Decision]) -> bool:
    """Return whether the numbers of GPUs in a job's last decision are to be counted again as of
    now, for which all nodes must be read."""
    last = own[-1] if own and Phase(job.phase).waits else None
    if last is None or last.reason is Reason.BEHIND_HIGHER_PRIORITY:
        return False
    return last.action is Action.WAIT and last.free is not None


def needs_bound(job: JobRow, forecast: StartForecastRow | None) -> bool:
    """Return whether a latest start by time limits is to be computed for a job: it waits, is not
    held, may start, and is no job of a followed Slurm."""
    if not Phase(job.phase).waits or job.slurm is not None or job.hold:
        return False
    return forecast is None or forecast.estimate != ForecastKind.IMPOSSIBLE
