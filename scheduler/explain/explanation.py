"""Why a job is in its present state, as plain values. The API replies with them, pages show them,
and the command line decodes them."""

from __future__ import annotations

from dataclasses import dataclass, field

from scheduler.core.receipts import Receipt
from scheduler.explain.answer import Analysis, OrderTerm
from scheduler.explain.belief import Belief
from scheduler.explain.life import Held
from scheduler.slurm.reason import SlurmReason


@dataclass(frozen=True, slots=True)
class Standing:
    """The place of a waiting job in its queue, counted from 1, and how many jobs wait in its
    virtual cluster."""

    position: int
    waiting: int


@dataclass(frozen=True, slots=True)
class StartForecastRow:
    """When a job is expected to start and end, in seconds since the epoch. If all figures are None,
    no estimate is available.

    Attributes:
        why_not: why no estimate is available; "" where one is.
        estimate: "crude" (work ahead over GPUs), "impossible" (the job cannot start), or None for a
            forecast from simulated futures.
        latest: its latest start, if all jobs before it run until their time limits and no job
            behind it starts first.
        no_latest: why there is no latest start.
        stated: the latest start if running jobs end when their reported progress says, which is not
            guaranteed; None: that is not earlier by a minute.
    """

    made_at: float
    start_p50: float | None
    start_p90: float | None
    end_p50: float | None
    end_p90: float | None
    why_not: str = ""
    start_p10: float | None = None
    estimate: str | None = None
    latest: float | None = None
    no_latest: str = ""
    stated: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionValues:
    """The values of a decision about a job that its sentence mentions.

    Attributes:
        reason: reason code of the decision.
        action: what was decided; "": no decision was taken, or none is recorded.
        need, free, limit: GPUs that the job asks for, that are free, and that it may use (for a
            profiling run, `limit` is its longest duration in seconds).
        closed: how many of the `limit` GPUs were closed.
        position: place in the queue, from 1.
        blocker, partner: the job in the way, and the job with which GPUs are shared.
        held_by: the jobs for whose end it waited.
        gone_in_s: seconds within which all of those should have ended, nine times in ten.
        at_once: how many tasks of its array may run at once.
    """

    reason: str
    action: str = ""
    need: int | None = None
    free: int | None = None
    limit: int | None = None
    closed: float | None = None
    position: int | None = None
    blocker: str | None = None
    partner: str | None = None
    held_by: list[str] = field(default_factory=list)
    gone_in_s: float | None = None
    at_once: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpusNow:
    """Whether a running job shares its GPUs now, and with which job.

    Attributes:
        partner: the job with which it shares; None: it shares with none.
        seconds: for how long it has shared.
        came: whether it started on GPUs that another job used.
        to: that other job.
    """

    partner: str | None = None
    seconds: float = 0.0
    came: bool = False
    to: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding(DecisionValues):
    """One reason for a job's state, with its numbers as they were when the reason began to hold.

    Attributes:
        reason: reason code, how the job ended or, where Slurm decides, Slurm's own word.
        since: when it began to hold, seconds since the epoch.
        decided: for a job that is over: the reason of the decision that ended it; "": no decision
            did.
        remedy: the reason whose remedy would help (`docs/reasons.md`); "": nothing would.
        shares: for a running job, in its first finding: whether it shares its GPUs.
    """

    since: float
    decided: str = ""
    remedy: str = ""
    shares: GpusNow | None = None


@dataclass(frozen=True, slots=True)
class Contribution:
    """One term of the predicted duration, as a factor on it.

    Attributes:
        term: its name in the model.
        text: what it is about, in words.
        value: value of its feature for this job.
    """

    term: str
    text: str
    value: str
    log_seconds: float
    factor: float


@dataclass(frozen=True, slots=True)
class PredictionReason:
    """Terms of the predicted duration with the same meaning, taken together; `factor` is their
    joint effect on it."""

    text: str
    factor: float
    terms: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PathStep:
    """A step on the way to a pair's predicted speeds, or to a sharing score.

    Attributes:
        of_partner: whether it is about the job that ran already, instead of the job that came.
        score, speed: the result, if this is the last step; otherwise None.
        corrected: whether `speed` was corrected by measured speeds of pairs.
        feature: the feature that was compared with `cut`.
        value: its value; None: unknown, or `withheld` from the viewer.
        at_most: whether the value is at most `cut`.
        note: the step as it was recorded, where it compares nothing.
    """

    of_partner: bool = False
    score: int | None = None
    speed: float | None = None
    corrected: bool = False
    feature: str = ""
    value: float | None = None
    withheld: bool = False
    at_most: bool = False
    cut: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """Why a job shares its GPUs, by the numbers with which the policy decided.

    Attributes:
        path: the steps to the predicted speeds, or to the sharing score.
        speed, partner_speed: predicted speeds of the job and its partner while they share, each
            over its speed alone.
        newcomer: whether this job came to the partner's GPUs; otherwise the partner came to this
            job's.
        gain_s: seconds by which the sum of the two jobs' times to the end is expected to be shorter
            than if the later one waited, computed from the speeds and the times left.
        left_s, partner_left_s: seconds that the job and its partner were expected to run on, alone.
        costs_s: total seconds of waiting that sharing costs other jobs; None: none, or the policy
            does not compute it.
    """

    partner: str
    path: list[PathStep]
    speed: float | None
    partner_speed: float | None
    newcomer: bool = True
    gain_s: float | None = None
    left_s: float | None = None
    partner_left_s: float | None = None
    costs_s: float | None = None


@dataclass(frozen=True, slots=True)
class Overtaken:
    """Jobs that were submitted later to the same virtual cluster, but got GPUs first.

    Attributes:
        why: number of these jobs, by reason.
    """

    jobs: int
    why: dict[str, int]


@dataclass(frozen=True, slots=True)
class ComparedTerm:
    """One term of the order values of two jobs, in seconds; None for a job that does not have the
    term."""

    what: str
    other: float | None = None
    this: float | None = None


@dataclass(frozen=True, slots=True)
class Compared:
    """Why another job went before this job, or goes before it.

    Attributes:
        first: whether the other job goes first.
        why: the reason that decides.
        started: the reason with which the other job started; "" while it waits.
        terms: terms of both jobs' order values.
        early_s: seconds that the other job had run when this job was submitted. If given, the order
            values are not compared.
    """

    job_id: str
    other: str
    first: bool = False
    why: str = ""
    started: str = ""
    terms: list[ComparedTerm] = field(default_factory=list)
    early_s: float | None = None
    unavailable: str = ""


@dataclass(frozen=True, slots=True)
class OrderRow:
    """A waiting job of the asking user (for an operator, of any user), with the terms of its order
    value."""

    position: int
    job_id: str
    gpus: int
    priority: int
    terms: list[OrderTerm]


@dataclass(frozen=True, slots=True)
class HeldRow:
    """A held job of the asking user (for an operator, of any user). Held jobs are in no queue."""

    job_id: str
    gpus: int
    priority: int


@dataclass(frozen=True, slots=True)
class Order:
    """The jobs that wait in a virtual cluster, in order. `waiting` is their number, without held
    ones."""

    vc: str
    waiting: int = 0
    rows: list[OrderRow] = field(default_factory=list)
    held: list[HeldRow] = field(default_factory=list)
    unavailable: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitedFor(DecisionValues):
    """All of a job's waiting for one reason, with the decision by which its longest period began.

    Attributes:
        seconds: how long it lasted in all.
        share: its share of the whole wait, 0 to 1.
        spells: number of separate periods.
    """

    seconds: float
    share: float
    spells: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedBound:
    """What followed when a wait became longer than the policy's bound on waiting.

    Attributes:
        bound_s: the bound, seconds.
        in_force: where no GPUs were reserved for it: whether the job then went before all jobs that
            had not waited beyond it.
        kept_after_s: seconds from its submission until GPUs were reserved for it; None: none were.
        started_after_s: seconds from that reservation until it started, in which it waited for the
            jobs on those GPUs; None: it has not started.
        kept_for: the job for which GPUs were reserved meanwhile, since only one gets them at a
            time; None: there was none.
        costs_s: where the bound is not in force, or was not at first: the waiting that going first
            was predicted to cost other jobs, seconds.
        times: where the bound is not in force, or was not at first: GPUs that all jobs asked for,
            over the GPUs that the job may use.
    """

    bound_s: float
    in_force: bool = False
    kept_after_s: float | None = None
    started_after_s: float | None = None
    kept_for: str | None = None
    costs_s: float | None = None
    times: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Waited:
    """A job's wait in numbers, so far or from beginning to end, without its reasons and the jobs
    that went first.

    Attributes:
        seconds: length of the wait.
        still: whether it goes on.
        live: whether this is about a present job of a service, instead of a record of a finished
            run.
        came: whether the job had neither started nor ended by the end of the record.
        refused: whether the job was refused, so that it was never in a queue.
        meanwhile: jobs that had most GPU-time of its virtual cluster, of those that the viewer may
            see.
        others: number of other jobs that had some.
        others_gpu_s: total GPU-seconds of those.
        held: maps a reason to the seconds for which the job was held for it, which do not count as
            waiting.
        bound: what followed when the wait passed the policy's bound; None: it has not, or that is
            not recorded.
    """

    gpus: int
    vc: str | None = None
    seconds: float = 0.0
    still: bool = False
    live: bool = True
    came: bool = False
    refused: bool = False
    meanwhile: list[Held] = field(default_factory=list)
    others: int = 0
    others_gpu_s: float = 0.0
    held: dict[str, float] = field(default_factory=dict)
    bound: PassedBound | None = None


@dataclass(frozen=True, slots=True)
class Times:
    """When a job was submitted, started and ended, in seconds since the epoch; None means not yet.

    Attributes:
        eligible_at: time since when it could have got GPUs: no dependency, begin time, hold or
            profiling run prevented it.
    """

    submitted_at: float
    eligible_at: float | None
    started_at: float | None
    ended_at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a job is in its present state.

    Attributes:
        reason: the reason of the first of `principal`.
        principal: the findings, at most four, in order of precedence; reasons that held earlier
            come last.
        standing: its place in its queue; None: it is in none.
        forecast: its expected start and end; None: no estimate yet.
        promised: the forecast that was made when it was submitted.
        bundle: digest of the model behind `contributions`.
        contributions: terms behind `predicted_s`, the largest first.
        intercept: value with which the score of every job begins, log-seconds; ln(1 + predicted_s)
            is its sum with the contributions. None: the model gave no terms.
        prediction: the contributions grouped by meaning, the largest first; the product of the
            factors is the same.
        belief: how long the job should run, by the distribution that decides; None: nothing is
            predicted.
        curve: inputs from which that distribution can be computed; None: they were not kept.
        packing: why it shares GPUs; None: it does not.
        waited_s: seconds that it has waited, or had when it started, without those for which it was
            held or profiled. None: not known.
        whole_wait: what its wait consisted of, or has so far; None for a job of a followed Slurm.
        waits: what it waited for, the longest first, with the numbers of that time. The seconds sum
            to its waiting time; for a job of Slurm, to the part that was observed.
        overtaken: later jobs that got GPUs first; None: none did.
        analysis: for a waiting job, the analysis of its wait, if it was asked for.
        detail: what the backend reports of the job.
        at: time of the answer, seconds since the epoch.
        gpus: GPUs that it asks for.
        state, exit_code: how it ended, as the backend reports it; "" and None: it has not.
        busy: what keeps the decider process from deciding about it; "": nothing.
        hold: "owner" or "operator", who may release it; "": it is not held.
        held_by, held_at: who holds it, and since when.
        crowded_out: it failed while it shared its GPUs with another job.
        slurm: for a job of a followed Slurm: why Slurm keeps it waiting, or did until it started
            it.
    """

    job_id: str
    phase: str
    reason: str
    principal: list[Finding]
    standing: Standing | None
    forecast: StartForecastRow | None
    estimate_s: float | None
    times: Times
    detail: str = ""
    bundle: str = ""
    contributions: list[Contribution] = field(default_factory=list)
    prediction: list[PredictionReason] = field(default_factory=list)
    belief: Belief | None = None
    packing: Packing | None = None
    waited_s: float | None = None
    waits: list[WaitedFor] = field(default_factory=list)
    promised: StartForecastRow | None = None
    overtaken: Overtaken | None = None
    analysis: Analysis | None = None
    hold: str = ""
    held_by: str = ""
    held_at: float | None = None
    slurm: SlurmReason | None = None
    whole_wait: Waited | None = None
    intercept: float | None = None
    predicted_s: float | None = None
    curve: Receipt | None = None
    at: float = 0.0
    gpus: int = 0
    state: str = ""
    exit_code: int | None = None
    busy: str = ""
    crowded_out: bool = False
