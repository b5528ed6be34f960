"""Why a job is where it is, as plain values: the API's replies, the pages, and the command line,
which decodes them. It loads nothing but the standard library.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from scheduler.core.receipts import Receipt
from scheduler.explain.answer import Analysis, OrderTerm
from scheduler.explain.belief import Belief
from scheduler.explain.life import Held
from scheduler.slurm.reason import SlurmReason


@dataclass(frozen=True, slots=True)
class Standing:
    """The place of a waiting job, counted from 1, and how many wait in its virtual cluster."""

    position: int
    waiting: int


@dataclass(frozen=True, slots=True)
class StartForecastRow:
    """When a job is expected to start and end, in seconds since the epoch.

    All figures None: estimate unavailable, and `why_not` says why. estimate: "crude", "impossible"
    (it cannot start), or None.

    latest: the start at the latest, if all before it take their limits and none behind it starts
    first; `no_latest`: why there is none. `stated`: the same if running jobs end by what their own
    progress states, which nobody guarantees; None: that is no earlier.
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
    """The values of a decision about a job that its sentence names.

    Attributes:
        action: what was decided; "": nothing was, or that is not recorded.
        need, free, limit: GPUs asked for, free and there; closed: how many of those were closed.
        position: place in line, from 1.
        blocker, partner: the job in the way, and the one that GPUs are shared with.
        held_by: the jobs it waited for, gone within `gone_in_s`, nine in ten.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class GpusNow:
    """With whom a job that runs has its GPUs now.

    Attributes:
        partner: with that job, for `seconds`; None: with nobody.
        came: whether it came to another's GPUs, and `to` whose.
    """

    partner: str | None = None
    seconds: float = 0.0
    came: bool = False
    to: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding(DecisionValues):
    """One reason with its numbers, as they were when it began to hold at `since` (seconds since the
    epoch).

    Attributes:
        reason: why, or how the job ended; Slurm's own word, where that decides.
        decided: of a job that is over, the reason of the decision that says how; "": none does.
        remedy: the reason whose remedy would help (`docs/reasons.md`); "": nothing would.
        shares: of a job that runs, in the first of its findings.
    """

    since: float
    decided: str = ""
    remedy: str = ""
    shares: GpusNow | None = None


@dataclass(frozen=True, slots=True)
class Contribution:
    """One term of the predicted duration, as a factor on it.

    Attributes:
        term: name in the model.
        text: subject of the term in words. `value` is its value for this job.
    """

    term: str
    text: str
    value: str
    log_seconds: float
    factor: float


@dataclass(frozen=True, slots=True)
class PredictionReason:
    """Terms of the predicted duration that mean the same, taken together; `factor` is their effect
    on it.
    """

    text: str
    factor: float
    terms: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PathStep:
    """A step on the way to a pair's speeds, or to a sharing score.

    Attributes:
        of_partner: it is about the job that was there, and not about the one that came.
        score, speed: what it led to, at the end of the way; `corrected`: by pairs that ran.
        feature: what was compared with `cut`, and `at_most` whether it is no more; value None: it
            is not known, or `withheld` from whoever asks.
        note: the step as it was written, where it compares nothing.
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
    """Why a job shares its GPUs, by the numbers that the policy decided by.

    Attributes:
        newcomer: whether it came to the other's GPUs, or the other to its own.
        path: the steps to the predicted speeds, or to the sharing score.
        speed, partner_speed: of alone, that both were predicted.
        gain_s: seconds that both ends, summed up, are expected to be sooner by sharing; worked out
            from the speeds and `left_s`, `partner_left_s`: what either had left to run alone.
        costs_s: seconds of waiting, in sum, that it costs others; None: nobody.
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
    """One term of the order values of two jobs, seconds; None if that job does not have it."""

    what: str
    other: float | None = None
    this: float | None = None


@dataclass(frozen=True, slots=True)
class Compared:
    """Why another job went before this job, or goes before it.

    Attributes:
        first: whether the other job goes first. `why` gives the deciding reason.
        started: the reason of the other job's start; "" while it waits.
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
    """A waiting job of the asker's (for an operator, of anybody's), and the terms of its place."""

    position: int
    job_id: str
    gpus: int
    priority: int
    terms: list[OrderTerm]


@dataclass(frozen=True, slots=True)
class HeldRow:
    """A held job of the asker's, which stands in no line."""

    job_id: str
    gpus: int
    priority: int


@dataclass(frozen=True, slots=True)
class Order:
    """The jobs waiting in a virtual cluster, in order. `waiting` is how many there are, without
    held ones.
    """

    vc: str
    waiting: int = 0
    rows: list[OrderRow] = field(default_factory=list)
    held: list[HeldRow] = field(default_factory=list)
    unavailable: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitedFor(DecisionValues):
    """All the waiting for one reason: its `share` of the whole, in how many `spells`, and what was
    decided as the longest began.
    """

    seconds: float
    share: float
    spells: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedBound:
    """What followed when a wait passed the policy's bound on waiting.

    Attributes:
        in_force: whether the job went before all others that had not passed it.
        kept_after_s: GPUs were kept for it so long after its submission; None: none were.
        started_after_s: and it waited so long for the jobs on them; None: it still does.
        kept_for: the job that GPUs were kept for meanwhile, one at a time; None: for none.
        costs_s, times: where the bound is not in force: what going first was predicted to cost
            the others, and how many times the GPUs that it may run on were asked for.
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
    """What a wait was made of, or is so far, besides its reasons and who went first.

    Attributes:
        seconds: in all; still: it goes on.
        live: the job is in a queue or runs, and this is no record of old.
        came: it was neither started nor ended yet. refused: it never was in a queue.
        meanwhile: jobs that had most GPU-time of its virtual cluster, of those that are shown.
        others: how many other jobs had any; others_gpu_s: GPU-seconds that they had in sum. Who
            may not see them learns no more of them.
        held: seconds that it was held, which are no waiting, by reason.
        bound: None: it has not passed the bound on waiting, or nobody recorded it.
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
    """When things happened, in seconds since the epoch; None means not yet.

    Attributes:
        eligible_at: it could have been given GPUs from then on: no dependency, begin time, hold or
            profiling run kept it from that.
    """

    submitted_at: float
    eligible_at: float | None
    started_at: float | None
    ended_at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a job is where it is.

    Attributes:
        reason: that of the first of `principal`.
        principal: at most four, in order of precedence; reasons that held earlier come last.
        contributions: terms behind `predicted_s`, largest first; `bundle` names the model.
        intercept: what every job starts at, log-seconds: ln(1 + predicted_s) is its sum with the
            contributions. None: the model gave no terms.
        prediction: the same grouped by what they say, largest first; the factors multiply to the
            same.
        belief: how long it should run, by what decides; None: nothing is predicted.
        curve: what its durations and odds are made of; None: that was not kept.
        waited_s: seconds that it has waited, or had when it started; without those it was held or
            profiled. None: not known.
        whole_wait: what its wait was made of, or is so far; None: of a job of Slurm's.
        waits: what it waited for, the longest first, by the numbers of then; the seconds sum to its
            waiting time, in front of Slurm to what of it was seen.
        overtaken: None: by nobody.
        forecast: None: no estimate yet. `promised`: the one made when it was submitted.
        analysis: when it was asked for, of a job that waits.
        detail: what the backend says of it.
        at: the moment of the answer. gpus: that it asks for.
        state, exit_code: how it ended, as the backend says; "" and None: it has not.
        busy: what keeps the decider from deciding about it; "": nothing.
        hold: "owner" or "operator", who may release it; held_by, held_at: by whom and since when it
            is held. "": it is not.
        crowded_out: it failed while it shared its GPUs with another job.
        slurm: of a job of a followed Slurm: why that has it waiting, or had until it started it.
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
