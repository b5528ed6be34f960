"""The one implementation of a job's features, for training rows and live rows alike.

`FeatureState` takes events of jobs in time order and returns, at any moment, the feature row of a
job. A row cannot depend on the future: the state learns from events only, a job's duration comes
with the event of its end, and an event before the last one is refused. Every event and every row
costs O(1) in the number of jobs seen; memory is O(keys) plus one record per job not yet ended.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, tzinfo
from enum import Enum
from functools import partial
from math import inf, isfinite, log1p, nan

from features import calendar, history, queue, survival
from features.amounts import Work
from features.expected import expected
from features.history import KeyHistory
from features.job import Job, Profile
from features.names import normalise
from features.queue import VcQueue
from features.repeats import LAST, LIMIT, OF, Claim, Made, Repeats, Statements, Word, made_of
from features.spec import FeatureSpec, Value
from features.states import State
from features.survival import ABSENT, MEMORY, OF_VC, Hazard, Lives
from features.templates import CommandBook, NameBook, TemplateBook, has_template
from features.throughput import KEPT, Ran

# Part of the schema digest: raise it when a feature of the same name comes to mean otherwise.
MEANING = 1

# Kinds of keys that a history is kept for: (prefix of its features, who it is about).
KEYS = (
    ("user", "this user"),
    ("user_gpus", "this user with this many GPUs"),
    ("template", "this template"),
    ("vc", "this VC"),
)

BURST_WINDOW_S = 3600.0
# Above this many submissions in the window the exact count is no news.
BURST_CAP = 1024

# The error of a stated duration, of its logarithm, at which it counts half.
DOUBTFUL = 0.5

# Beside the histories of a user's jobs by number of GPUs, under a number that no job has: durations
# of those that had a time limit, as shares of it.
_OF_LIMITS = -1

# What fits a calendar, with a day to spare for any time zone.
_EARLIEST, _LATEST = -62_135_510_400.0, 253_402_214_400.0

SIZE = (
    FeatureSpec(name="gpus", kind="continuous", family="size", unit="GPUs", text="GPUs asked for"),
    FeatureSpec(
        name="cpus", kind="continuous", family="size", unit="cores", text="CPU cores asked for"
    ),
    FeatureSpec(
        name="memory_mib",
        kind="continuous",
        family="size",
        unit="MiB",
        text="host memory asked for",
    ),
    FeatureSpec(name="gpu_type", kind="nominal", family="size", unit="", text="GPU type required"),
    FeatureSpec(
        name="time_limit_s",
        kind="continuous",
        family="size",
        unit="s",
        text="time limit asked for",
        monotone=1,
    ),
)
IDENTITY = (
    FeatureSpec(name="user", kind="nominal", family="identity", unit="", text="submitting user"),
    FeatureSpec(name="vc", kind="nominal", family="identity", unit="", text="virtual cluster"),
)
BURST = (
    FeatureSpec(
        name="user_submitted_1h",
        kind="continuous",
        family="burst",
        unit="jobs",
        text="jobs this user sent in the last hour",
    ),
)
PROFILE = (
    FeatureSpec(
        name="gpu_util_pct",
        kind="continuous",
        family="profile",
        unit="%",
        text="GPU utilisation when profiled",
    ),
    FeatureSpec(
        name="gpu_mem_util_pct",
        kind="continuous",
        family="profile",
        unit="%",
        text="GPU memory activity when profiled",
    ),
    FeatureSpec(
        name="gpu_mem_mib",
        kind="continuous",
        family="profile",
        unit="MiB",
        text="GPU memory in use when profiled",
    ),
    FeatureSpec(
        name="amp",
        kind="nominal",
        family="profile",
        unit="",
        text="mixed precision seen when profiled",
    ),
)


def _key_specs(prefix: str, who: str) -> tuple[FeatureSpec, ...]:
    stats = history.PAST + history.SINCE
    return tuple(history.specs(prefix, who, prefix, stats))


# The VC's counts are in the family `queue`, with its GPUs.
_VC_SKIPS = 2


def _running_specs() -> tuple[FeatureSpec, ...]:
    return tuple(
        spec
        for prefix, who in KEYS
        for spec in history.specs(
            prefix,
            who,
            "running",
            history.RUNNING[_VC_SKIPS:] if prefix == "vc" else history.RUNNING,
        )
    )


_SPECS: dict[str, tuple[FeatureSpec, ...]] = {
    "size": SIZE,
    "identity": IDENTITY,
    **{prefix: _key_specs(prefix, who) for prefix, who in KEYS},
    "running": _running_specs(),
    "survival": survival.SPECS,
    "odds": survival.ODDS,
    "burst": BURST,
    "calendar": calendar.SPECS,
    "queue": queue.SPECS,
    "profile": PROFILE,
}

# Every family, in the order its features stand in a row.
FAMILIES: tuple[str, ...] = tuple(_SPECS)
# Raw identities are left out: as nominal terms they cost an additive model accuracy, and their
# histories say the same and more. Odds say again what `survival` says.
DEFAULT_FAMILIES: frozenset[str] = frozenset(FAMILIES) - {"identity", "odds"}


class FeatureError(ValueError):
    """Raised for an event, a table or a request for features that cannot be right: it contradicts
    what is recorded, or something in it is missing or impossible. The message says what is
    wrong."""


def features_of(
    families: Iterable[str] = DEFAULT_FAMILIES, names: Iterable[str] | None = None
) -> tuple[FeatureSpec, ...]:
    """Return the specs of the chosen families in the one stable order. With `names`, return only
    those features.

    Raises FeatureError if a family or a name does not exist.
    """
    chosen = frozenset(families)
    unknown = sorted(chosen - set(FAMILIES))
    if unknown:
        raise FeatureError(f"feature family {unknown[0]!r}: choose among {', '.join(FAMILIES)}")
    specs = tuple(spec for family in FAMILIES if family in chosen for spec in _SPECS[family])
    if names is None:
        return specs
    wanted = frozenset(names)
    unknown = sorted(wanted - {spec.name for spec in specs})
    if unknown:
        raise FeatureError(
            f"feature {unknown[0]!r}: not in the families {', '.join(sorted(chosen)) or '(none)'}"
        )
    return tuple(spec for spec in specs if spec.name in wanted)


FEATURES: tuple[FeatureSpec, ...] = features_of()


def schema_digest(features: Iterable[FeatureSpec] = FEATURES) -> str:
    """Return the SHA-256 (hex) of the features' names, kinds, families and units in order, and of
    the number `MEANING`, which is raised when a feature's meaning changes."""
    content = [[spec.name, spec.kind, spec.family, spec.unit] for spec in features]
    return hashlib.sha256(json.dumps([MEANING, content]).encode()).hexdigest()


class _Phase(Enum):
    UNSEEN = 0
    QUEUED = 1
    RUNNING = 2


@dataclass(slots=True)
class _Submission:
    """A job that has not ended, with the feature values that were fixed when it was submitted."""

    job: Job
    # of the user, of the user with as many GPUs, of the template and of the VC, as in KEYS
    keys: tuple[KeyHistory, KeyHistory, KeyHistory, KeyHistory]
    since_submit: tuple[float, ...]  # of each of them, the last submission before this one
    burst: float  # NaN without a user
    calendar: tuple[Value, ...]
    queue: VcQueue
    survival: tuple[float, ...]  # and the odds; empty where neither family is kept
    hazards: tuple[float, ...]  # behind them
    command: KeyHistory | None = None  # of the same command of its user, where that is known
    named: KeyHistory | None = None  # of the same name
    made: tuple[Made, ...] = ()  # what its last runs claim of it
    claims: tuple[Claim, ...] = ()  # those that are believed, and what its owner expects
    phase: _Phase = _Phase.UNSEEN
    profile: Profile | None = None
    began: float = nan  # its latest run
    outlived_s: float = 0.0  # its longest run before that did not end it

    @property
    def histories(self) -> tuple[KeyHistory, ...]:
        """Return the histories that this job counts in: those of `KEYS` (user, template, ...), of
        its command and of its name."""
        more = (self.command, self.named)
        return (*self.keys, *(one for one in more if one is not None))


def _carried_on(was: _Submission, changed: _Submission) -> _Submission:
    """Return `changed`, the submission of a job whose request was changed, with the values of its
    former submission `was` that still hold: burst, calendar and the times since earlier
    submissions. The profile and the longest run so far are kept if the number of GPUs is the
    same."""
    changed.burst, changed.calendar = was.burst, was.calendar
    changed.since_submit = tuple(
        before if key is old else since
        for key, old, before, since in zip(
            changed.keys, was.keys, was.since_submit, changed.since_submit, strict=True
        )
    )
    if changed.job.gpus == was.job.gpus:
        changed.profile, changed.outlived_s = was.profile, was.outlived_s
    return changed


_ERROR = survival.SPECS.index(survival.ERROR)
_NOTHING = KeyHistory()  # stands for a key never seen; never written to
_Block = Callable[[_Submission, float, list[Value]], None]


def _size(job: _Submission, _now: float, out: list[Value]) -> None:
    asked = job.job
    out += (
        float(asked.gpus),
        _or_nan(asked.cpus),
        _or_nan(asked.memory_mib),
        asked.gpu_type or None,
        _or_nan(asked.time_limit_s),
    )


def _identity(job: _Submission, _now: float, out: list[Value]) -> None:
    out += (job.job.user or None, job.job.vc or None)


def _key(index: int, job: _Submission, now: float, out: list[Value]) -> None:
    key = job.keys[index]
    out += key.past
    out += (job.since_submit[index], now - key.last_end)


def _running(job: _Submission, now: float, out: list[Value]) -> None:
    job_id = job.job.job_id
    own = job.phase is _Phase.QUEUED
    *of_user, of_vc = job.keys
    for key in of_user:
        out += key.present(job_id, now, own)
    out += of_vc.present(job_id, now, own)[_VC_SKIPS:]


def _survival(job: _Submission, _now: float, out: list[Value]) -> None:
    out += job.survival[: len(survival.SPECS)]


def _odds(job: _Submission, _now: float, out: list[Value]) -> None:
    out += job.survival[len(survival.SPECS) :]


def _burst(job: _Submission, _now: float, out: list[Value]) -> None:
    out.append(job.burst)


def _calendar(job: _Submission, _now: float, out: list[Value]) -> None:
    out += job.calendar


def _queue(job: _Submission, _now: float, out: list[Value]) -> None:
    vc, gpus = job.queue, job.job.gpus
    waits, runs = job.phase is _Phase.QUEUED, job.phase is _Phase.RUNNING
    out += (
        float(vc.queued - waits),
        float(vc.queued_gpus - waits * gpus),
        float(vc.running - runs),
        float(vc.running_gpus - runs * gpus),
    )


def _profile(job: _Submission, _now: float, out: list[Value]) -> None:
    seen = job.profile
    if seen is None:
        out += (nan, nan, nan, None)
        return
    amp = None if seen.amp is None else ("yes" if seen.amp else "no")
    out += (seen.gpu_util_pct, seen.gpu_mem_util_pct, seen.gpu_mem_mib, amp)


def _or_nan(value: float | None) -> float:
    return nan if value is None else float(value)


_BLOCKS: dict[str, _Block] = {
    "size": _size,
    "identity": _identity,
    **{prefix: partial(_key, index) for index, (prefix, _) in enumerate(KEYS)},
    "running": _running,
    "survival": _survival,
    "odds": _odds,
    "burst": _burst,
    "calendar": _calendar,
    "queue": _queue,
    "profile": _profile,
}


class FeatureState:
    """Everything that the features remember of jobs, updated by events in time order.

    `families` and `names` choose the features of a row, see `features_of`; `timezone` is the clock
    of the calendar features.

    Times are seconds since the Unix epoch, the same clock for all calls; a call with a time before
    the last event raises FeatureError and changes nothing. So does an event of a job that was not
    submitted, or that is already in the state that the event leads to.

    Some values of a row are fixed at submission (calendar, burst, survival, time since the previous
    submission); all others are as of `now`. A row never counts the job itself, so it is the same
    just before and just after the job's own `submit`.
    """

    def __init__(
        self,
        families: Iterable[str] = DEFAULT_FAMILIES,
        *,
        names: Iterable[str] | None = None,
        timezone: tzinfo = UTC,
    ) -> None:
        self.features = features_of(families, names)
        chosen = {spec.family for spec in self.features}
        self._blocks = [_BLOCKS[family] for family in FAMILIES if family in chosen]
        # Whole families are computed; where only some of their features are asked for, picked.
        columns = [spec.name for spec in features_of(chosen)]
        self._picks = [columns.index(spec.name) for spec in self.features]
        self._whole = len(columns) == len(self._picks)
        self._zone = timezone
        self._now = float("-inf")
        self._users: defaultdict[str, KeyHistory] = defaultdict(KeyHistory)
        self._user_gpus: defaultdict[tuple[str, int], KeyHistory] = defaultdict(KeyHistory)
        self._templates = TemplateBook()
        self._vcs: defaultdict[str, KeyHistory] = defaultdict(KeyHistory)
        self._queues: defaultdict[str, VcQueue] = defaultdict(VcQueue)
        self._bursts: defaultdict[str, list[float]] = defaultdict(list)
        self._survives = not chosen.isdisjoint(("survival", "odds"))
        self._lives = Lives()
        self._everyone = Hazard(MEMORY[0])
        self._vc_gpus: dict[tuple[str, int], Hazard] = {}
        self._live: dict[str, _Submission] = {}
        # of a user's script and its unit, the latest runs that completed
        self._ran: dict[tuple[str, str, str], tuple[Ran, ...]] = {}
        self._commands, self._names = CommandBook(), NameBook()
        self._repeats, self._statements = Repeats(), Statements()

    # -- events ------------------------------------------------------------------------------

    def submit(self, job: Job, now: float) -> None:
        """Record that a job was submitted and waits from `now` on."""
        if job.job_id in self._live:
            raise FeatureError(f"job {job.job_id}: already submitted and not yet ended")
        _check_time(now, self._now)
        _check_asked(job)
        self._now = now
        if self._survives:
            self._lives.advance(now)
        submission = self._recorded(job, now)
        if self._survives:
            self._lives.submit(job.job_id, self._hazards(submission))
        _join_queue(submission)
        for key in submission.keys:
            key.last_submit = now
        if job.user:
            times = self._bursts[job.user]
            times.append(now)
            # Amortised O(1): what has left the window is dropped once.
            del times[: max(_expired(times, now), len(times) - BURST_CAP)]

    def change(self, job: Job, now: float) -> None:
        """Record that a waiting job asks for something else from `now` on.

        The job keeps its time of submission and the values fixed then, except two: its survival
        features, and those of histories that change with the request (number of GPUs, virtual
        cluster). These are as of `now`. With an unchanged job, only survival features and claims
        are updated.
        """
        was = self._known(job.job_id, now)
        if was.phase is not _Phase.QUEUED:
            raise FeatureError(f"job {job.job_id}: not waiting")
        _check_asked(job)
        self._now = now
        if self._survives:
            self._lives.advance(now)
        if job == was.job:  # looked up again: of the histories that it was of, found again or not
            if self._survives:
                lives = self._lives.as_of(self._hazards(was), now, job.job_id)
                was.survival, was.hazards = survival.known(lives, job.time_limit_s)
                self._look_up_claims(was, now)
            return
        _leave_queue(was)
        submission = _carried_on(was, self._recorded(job, now))
        if self._survives:
            self._lives.regroup(job.job_id, self._hazards(submission))
        _join_queue(submission)

    def start(self, job_id: str, now: float) -> None:
        """Record that a job runs from `now` on. Its elapsed time counts from `now`."""
        submission = self._known(job_id, now)
        if submission.phase is _Phase.RUNNING:
            raise FeatureError(f"job {job_id}: already running")
        self._now = now
        _leave_queue(submission)
        submission.phase, submission.began = _Phase.RUNNING, now
        if self._survives:
            self._lives.advance(now)
            self._lives.start(job_id, now)
        for key in submission.histories:
            key.running.add(job_id, now)
        submission.queue.run(submission.job.gpus)

    def requeue(self, job_id: str, now: float) -> None:
        """Record that a running job stopped without ending (it was preempted or put back), and
        waits again from `now` on."""
        submission = self._known(job_id, now)
        if submission.phase is not _Phase.RUNNING:
            raise FeatureError(f"job {job_id}: not running")
        self._now = now
        if self._survives:
            self._lives.advance(now)
            self._lives.stop(job_id)
        _leave_gpus(submission)
        _join_queue(submission)
        submission.outlived_s = max(submission.outlived_s, now - submission.began)

    def try_out(self, job_id: str, now: float) -> None:
        """Record that a waiting job runs for a short time from `now` on, for example to be
        profiled. It still counts as waiting."""
        submission = self._known(job_id, now)
        if submission.phase is _Phase.RUNNING:
            raise FeatureError(f"job {job_id}: already running")
        self._now, submission.began = now, now
        if self._survives:
            self._lives.advance(now)
            self._lives.start(job_id, now)

    def tried_out(self, job_id: str, now: float) -> None:
        """Record that the trial run of `try_out` is over and did not end the job. From then on the
        job is known to last longer than that run."""
        submission = self._known(job_id, now)
        self._now = now
        if self._survives:
            self._lives.advance(now)
            self._lives.stop(job_id)
        if submission.began == submission.began:  # else its beginning was not seen
            submission.outlived_s = max(submission.outlived_s, now - submission.began)

    def profiled(self, job_id: str, profile: Profile, now: float) -> None:
        """Record the profile of a job, known from `now` on."""
        self._known(job_id, now).profile = profile
        self._now = now

    def stated(self, job_id: str, total_s: float, error: float, now: float) -> None:
        """Record that a job reported that it will have run `total_s` seconds when it ends. `error`
        is the standard deviation of the logarithm of that. Until the job ends, it counts as a job
        of that duration in the histories of its groups, except that of all jobs. It counts the
        less, the larger the error."""
        self._known(job_id, now)
        self._now = now
        if self._survives:
            self._lives.advance(now)
            self._lives.state(job_id, total_s, 1.0 / (1.0 + (error / DOUBTFUL) ** 2))

    def end(self, job_id: str, now: float, state: State, duration_s: float | None) -> None:
        """Record that a job ended, and learn from `duration_s`, its exclusive running time.

        With None nothing is learned: the job never ran, or its duration is unknown.
        """
        submission = self._known(job_id, now)
        if duration_s is not None and not (isfinite(duration_s) and duration_s >= 0):
            raise FeatureError(f"job {job_id}: duration_s is {duration_s}, must be >= 0 or None")
        self._now = now
        if submission.phase is _Phase.RUNNING:
            _leave_gpus(submission)
        else:
            _leave_queue(submission)
        del self._live[job_id]
        if self._survives:
            self._lives.advance(now)
            self._lives.end(job_id, duration_s)
        if duration_s is not None:
            for key in submission.histories:
                key.learn(now, state, duration_s)
            job = submission.job
            for made in submission.made:
                self._repeats.learn(made, duration_s)
            if (between := expected(job.expect)) and job.user:
                self._statements.learn(job.user, *between, duration_s)
            if job.user and job.time_limit_s:
                used = self._user_gpus[job.user, _OF_LIMITS]
                used.learn(now, state, duration_s / job.time_limit_s)
            if job.work is not None and state is State.COMPLETED and duration_s >= 1.0:
                ran = Ran(job.work, job.gpus, duration_s)
                self._ran[_script(job, job.work)] = (*self.ran(job), ran)[-KEPT:]

    def ran(self, job: Job) -> tuple[Ran, ...]:
        """Return the latest completed runs of the script of this job by the same user, the oldest
        first; () if the job's work is unknown."""
        return () if job.work is None else self._ran.get(_script(job, job.work), ())

    # -- rows --------------------------------------------------------------------------------

    def row(self, job: Job, now: float) -> list[Value]:
        """Return the feature values of `job` as of `now`, aligned with `self.features`.

        Of a job that was not submitted, they are those that it would have after `submit`. If `job`
        waits and differs from the job as submitted, they are those that it would have after
        `change`. The state does not change.
        """
        submission = self._seen_now(job, now)
        was = self._live.get(job.job_id, submission)
        if was is submission:
            return self._values(submission, now)
        _leave_queue(was)  # it would not count itself among those that wait
        try:
            return self._values(submission, now)
        finally:
            _join_queue(was)

    def outlook(self, job: Job, now: float) -> tuple[tuple[float, ...], float]:
        """Return (terms of `survival.SUM`, standard error of their sum): the prediction of ln(1 +
        seconds) for a job by the histories of similar jobs alone.

        Raises FeatureError if the family `survival` was not chosen.
        """
        if not self._survives:
            raise FeatureError("outlook: the family survival is not kept")
        known = self._seen_now(job, now).survival
        return known[: len(survival.SUM)], known[_ERROR]

    def cut_off(self, job: Job, now: float) -> float:
        """Return what a job's time limit adds to the mean of ln(1 + seconds) of similar jobs, below
        0 where it lowers it. Return 0 if the job has no limit, or if the family `survival` was not
        chosen."""
        known = self._seen_now(job, now).survival
        return known[len(survival.SUM) - 1] if known else 0.0

    def curve(self, job: Job, now: float, score: float) -> tuple[tuple[float, ...], float]:
        """Return a job's hazards as of its submission or last `change` (see `hazards`), and by how
        much `score`, a prediction of ln(1 + seconds), is above the mean that they give. Return
        ((), 0) if the family `survival` was not chosen."""
        seen = self._seen_now(job, now)
        if not seen.hazards:
            return (), 0.0
        return seen.hazards, score - sum(seen.survival[: len(survival.SUM)])

    def beyond(self, job: Job, now: float, score: float) -> tuple[float, float]:
        """Return (seconds, change): the longest time that the job has run without ending, and by
        how much that raises `score`, a prediction of the job's ln(1 + seconds).

        The change is the mean of the similar jobs that last longer, less the mean of all similar
        jobs. The changed score is at least ln(1 + seconds). Both values are 0 if the job has not
        run before, or if the family `survival` was not chosen.
        """
        seen = self._seen_now(job, now)
        if not (seen.outlived_s > 0 and seen.hazards):
            return 0.0, 0.0
        shifted = score - sum(seen.survival[: len(survival.SUM)])  # by what other terms add
        least = log1p(seen.outlived_s)
        limit = job.time_limit_s
        mean = survival.beyond(seen.hazards, least - shifted, limit)
        moves = mean - survival.beyond(seen.hazards, -inf, limit)
        return seen.outlived_s, max(moves, least - score)

    def claims(self, job: Job, now: float) -> tuple[Claim, ...]:
        """Return the claims (ranges of duration) about a job: that of its last runs first, then
        that of its owner's expectation. Either may be missing. Return () if the family `survival`
        was not chosen."""
        return self._seen_now(job, now).claims

    def ended_here(self, job: Job) -> int | None:
        """Return the number of jobs that have ended here after a known duration, if it is 0 or if
        the job has a user and none of them is that user's. Otherwise return None."""
        ended = sum(key.ended for key in self._vcs.values())
        if job.user and not self._users.get(job.user, _NOTHING).ended:
            return ended
        return None if ended else 0

    def word(self, user: str) -> Word:
        """Return how many of a user's latest expected durations (`submit --expect`) held, and how
        many these are, see `Statements.word`."""
        return self._statements.word(user)

    def hazards(self, job: Job, now: float) -> list[float]:
        """Return a job's hazards: for each of `survival.BINS` stretches of running time, the share
        that ends in the stretch of the similar jobs that reach it. Raise FeatureError if the family
        `survival` was not chosen."""
        if not self._survives:
            raise FeatureError("hazards: the family survival is not kept")
        _check_time(now, self._now)
        template = self._templates.find(job) or _NOTHING
        return survival.hazards(self._lives.as_of(self._groups(job, template), now))[-1]

    def histories(self, job: Job, now: float) -> tuple[survival.History, ...]:
        """Return how long the jobs of each of a job's groups lasted, from the widest group (all
        jobs) to the narrowest (the job's template).

        Raises FeatureError if the family `survival` was not chosen.
        """
        if not self._survives:
            raise FeatureError("histories: the family survival is not kept")
        _check_time(now, self._now)
        template = self._templates.find(job) or _NOTHING
        groups = self._lives.as_of(self._groups(job, template), now, job.job_id)
        kind = f"named like {job.name}" if job.name else f"of {job.gpus} GPUs, unnamed"
        whose = f"{job.user}'s" if job.user else f"{job.vc or 'all'}'s"
        return survival.histories(
            groups,
            (
                "all jobs",
                f"jobs of {job.vc or 'no virtual cluster'} with {job.gpus} GPUs",
                f"{job.user}'s jobs",
                f"{whose} jobs {kind}",
            ),
        )

    # -- inside ------------------------------------------------------------------------------

    def _known(self, job_id: str, now: float) -> _Submission:
        submission = self._live.get(job_id)
        if submission is None:
            raise FeatureError(f"job {job_id}: not submitted, or already ended")
        _check_time(now, self._now)
        return submission

    def _seen_now(self, job: Job, now: float) -> _Submission:
        """Return the recorded submission of a job. If the job is unknown, or a waiting job that
        differs from the recorded one, return the submission as it would be recorded now. The state
        does not change."""
        _check_time(now, self._now)
        was = self._live.get(job.job_id)
        if was is None:
            return self._preview(job, now)
        if was.job == job or was.phase is not _Phase.QUEUED:
            return was
        return _carried_on(was, self._preview(job, now))

    def _values(self, submission: _Submission, now: float) -> list[Value]:
        out: list[Value] = []
        for block in self._blocks:
            block(submission, now, out)
        return out if self._whole else [out[i] for i in self._picks]

    def _preview(self, job: Job, now: float) -> _Submission:
        """Return the submission of `job` as it would be recorded now. The state does not change."""
        _check_asked(job)
        template = self._templates.find(job) or _NOTHING
        keys = (
            self._users.get(job.user, _NOTHING),
            self._user_gpus.get((job.user, job.gpus), _NOTHING),
            template,
            self._vcs.get(job.vc, _NOTHING),
        )
        times = self._bursts.get(job.user, [])
        known = survival.Known((), ())
        if self._survives:
            known = survival.known(
                self._lives.as_of(self._groups(job, template), now, job.job_id), job.time_limit_s
            )
        submission = _Submission(
            job,
            keys,
            tuple([now - key.last_submit for key in keys]),
            float(len(times) - _expired(times, now)) if job.user else nan,
            calendar.values(job.submit_time, self._zone),
            self._queues.get(job.vc) or VcQueue(),
            *known,
            self._commands.find(job) if job.like else None,
            self._names.find(job) if job.name else None,
        )
        if self._survives:
            self._look_up_claims(submission, now)
        return submission

    def _look_up_claims(self, submission: _Submission, now: float) -> None:
        """Set the fields `made` and `claims` of a submission: the ranges of duration that are
        claimed about its job, as of `now`."""
        job, template = submission.job, submission.keys[2]
        # without a name, a template is no more than a user's jobs of one size
        like = template if normalise(job.name) else None
        made = [
            made_of(of, key.latest(LAST), key.running.values(job.job_id, now)[1])
            for of, key in zip(OF, (submission.command, submission.named, like), strict=False)
            if key is not None
        ]
        used = self._user_gpus.get((job.user, _OF_LIMITS)) if job.time_limit_s else None
        if used is not None and len(shares := used.latest(LAST)) == LAST:  # fewer say little
            limit_s = job.time_limit_s or 0.0
            made.append(made_of(LIMIT, [share * limit_s for share in shares], nan))
        submission.made = tuple(one for one in made if one is not None)
        repeats = self._repeats.best(submission.made)
        says = self._statements.claim(job.user, job.expect) if job.expect and job.user else None
        submission.claims = tuple(claim for claim in (repeats, says) if claim is not None)

    def _groups(self, job: Job, template: KeyHistory) -> tuple[Hazard | None, ...]:
        """Return the groups of jobs, one per level of `survival.LEVELS`, that a job belongs to;
        None for a group without an earlier job, ABSENT where the job has no such group."""
        return (
            self._everyone,
            self._vc_gpus.get((job.vc, job.gpus)),
            self._users.get(job.user, _NOTHING).hazard if job.user else ABSENT,
            template.hazard if has_template(job) else ABSENT,
        )

    def _recorded(self, job: Job, now: float) -> _Submission:
        """Record a submission and return it. Histories that do not exist yet are created.

        A job without a user, or without anything that makes a template, gets histories of its own,
        which no other job shares.
        """
        submission = self._preview(job, now)
        submission.keys = (
            self._users[job.user] if job.user else KeyHistory(),
            self._user_gpus[job.user, job.gpus] if job.user else KeyHistory(),
            self._templates.assign(job) if has_template(job) else KeyHistory(),
            self._vcs[job.vc],
        )
        submission.queue = self._queues[job.vc]
        submission.command = self._commands.assign(job) if job.like else None
        submission.named = self._names.assign(job) if job.name else None
        self._live[job.job_id] = submission
        return submission

    def _hazards(self, submission: _Submission) -> tuple[Hazard, ...]:
        """Return the groups of jobs, one per level of `survival.LEVELS`, that a submitted job
        belongs to. Groups that do not exist yet are created."""
        job = submission.job
        user, _, template, _ = submission.keys
        _, of_vc_gpus, of_user, of_template = MEMORY
        if user.hazard is None:
            user.hazard = Hazard(of_user) if job.user else ABSENT
        if template.hazard is None:
            memory = of_template if job.user else OF_VC
            template.hazard = Hazard(memory) if has_template(job) else ABSENT
        shared = self._vc_gpus.setdefault((job.vc, job.gpus), Hazard(of_vc_gpus))
        return self._everyone, shared, user.hazard, template.hazard


def _join_queue(submission: _Submission) -> None:
    submission.phase = _Phase.QUEUED
    for key in submission.keys:
        key.queued += 1
    submission.queue.enqueue(submission.job.gpus)


def _leave_queue(submission: _Submission) -> None:
    for key in submission.keys:
        key.queued -= 1
    submission.queue.enqueue(submission.job.gpus, -1)


def _leave_gpus(submission: _Submission) -> None:
    for key in submission.histories:
        key.running.remove(submission.job.job_id)
    submission.queue.run(submission.job.gpus, -1)


def _check_time(now: float, last: float) -> None:
    if not (isfinite(now) and now >= last):
        raise FeatureError(f"time {now}: must not be before the last event, {last}")


def _check_asked(job: Job) -> None:
    if not (_EARLIEST < job.submit_time < _LATEST and job.gpus >= 0):
        raise FeatureError(
            f"job {job.job_id}: submit_time is {job.submit_time} and gpus {job.gpus}, must be "
            f"a time within the calendar (seconds since 1970) and >= 0"
        )


def _expired(ascending: list[float], now: float) -> int:
    """Return how many times of an ascending list the burst window that ends at `now` leaves out:
    those at or before its beginning. They are at the start of the list."""
    return bisect_right(ascending, now - BURST_WINDOW_S)


def _script(job: Job, work: Work) -> tuple[str, str, str]:
    return job.user, work.script, work.unit
