"""Detects that a site's jobs have changed: they no longer arrive, or last, as in its past weeks.

Causes are, for example, a changed unit or time zone, a column that is misread, or a new team. Each
makes the jobs of one group (a virtual cluster, a user, a size, a GPU type) unlike those of the past
weeks, from one moment on. For each possible change, the likelihood ratio of each observation is
summed; the sum starts again at 0 when observations speak against the change (cumulative sums; Page,
"Continuous inspection schemes", Biometrika 1954).

Jobs come in bursts of near-copies, which must not count as independent. So the jobs of one user in
an hour (without users, of one virtual cluster and size) are one observation, their mean.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log, log1p
from statistics import NormalDist, fmean, pstdev
from typing import NamedTuple

HOUR_S, DAY_S = 3600.0, 86_400.0
PAST_S, LEAST_PAST_S = 28 * DAY_S, 7 * DAY_S  # with which the last day is compared
ENOUGH = 30  # jobs of a group in the past that its durations are compared with
FURTHEST = 2.5  # of a residual: one job is never more surprising
SHIFT = 1.0  # of durations that is looked for, standard deviations of a group's observations
LEAST_SPREAD = 0.35  # of a group's observations
PRIOR = 5.0  # jobs of the site that a virtual cluster's sizes and types are drawn to
NEWCOMERS = 0.5  # share of a virtual cluster's observations that are a new team's
KNOWN_AFTER_S = 7 * DAY_S  # of the past, before who is new is counted
WHOLE_S = 0.5 * DAY_S  # that jobs of a day lie apart, before the hours they come at are judged
ALIKE = 0.5  # of what each says of that: who is busy for an hour is so for the next
CAP = 2.5  # of what one observation says
# A sum above which there is an alarm. Chosen on Venus; openb and Philly were looked at between
# changes of this module, so what is measured on them flatters, too.
LIMIT = 14.0
RESTLESS = 1.2  # times the sum that the past would have had for one of its own days
LONGEST_SILENCE_S = 3 * DAY_S  # nothing that changed: nobody worked, or nothing was recorded
ALMOST = 0.98
MOST_OF_MIX = (
    1.5  # that an observation says of what is asked for: one user may ask for other things
)
OF_ONE = 1.2  # times as much has to speak for a change of a user, who may do other work
MOST_OF_ONE = 0.55  # of the limit, that one user adds to the sum of a group
_NORMAL = NormalDist()


class Seen(NamedTuple):
    """The data of an ended job with which changes are detected. `submitted` is in seconds since the
    epoch, `seconds` is the job's duration."""

    submitted: float
    seconds: float
    gpus: int
    vc: str
    user: str = ""
    gpu_type: str = ""


@dataclass(frozen=True, slots=True)
class Alarm:
    """An alarm: jobs of a group differ from what was usual in the past weeks.

    Attributes:
        group: the jobs that changed: "virtual cluster vcA", "user ada", "all jobs", ...
        what: how they differ from before, in words.
        since: first observation of the change (the last job before a silence), seconds since the
            epoch.
        sum: evidence for the change, a log-likelihood ratio in nats.
        seen: number of observations since then.
        ratio: duration of the jobs as a multiple of the usual one; 1 if something else changed.
    """

    group: str
    what: str
    since: float
    sum: float
    seen: int
    ratio: float = 1.0

    @property
    def kind(self) -> str:
        """Return the kind of group that the alarm is about, one of `KINDS`."""
        return next(kind for begins, kind in _KINDS.items() if self.group.startswith(begins))

    @property
    def name(self) -> str:
        """Return the name of the virtual cluster, user, size or GPU type; "" for all jobs."""
        return next(
            self.group.removeprefix(begins) for begins in _KINDS if self.group.startswith(begins)
        ).removeprefix(ALL)


def unlike(jobs: Sequence[Seen], now: float) -> list[Alarm]:
    """Return alarms about the jobs submitted from a day before `now` on, compared with those of up
    to 27 days before. Return [] if less than a week before that day is known."""
    recent_from = now - DAY_S
    usual = usual_of(jobs, recent_from)
    if usual is None:
        return []
    return usual.alarms(job for job in jobs if job.submitted >= recent_from)


def usual_of(jobs: Iterable[Seen], until: float) -> Watch | None:
    """Return a `Watch` fitted to the jobs of the four weeks that end with a given day, without that
    day. Return None if less than a week of them is known.

    Args:
        until: start of the day, seconds since the epoch; later jobs are left out.
    """
    past = [job for job in jobs if until + DAY_S - PAST_S <= job.submitted < until]
    if not past or until - min(job.submitted for job in past) < LEAST_PAST_S:
        return None
    return Watch(past)


class _Observation(NamedTuple):
    """One observation: near-copies of a job that were submitted within an hour, with their mean
    residual."""

    at: float
    jobs: tuple[Seen, ...]
    z: float  # mean residual of their durations
    log_ratio: float  # mean ln of how many times as long they lasted as is usual


Says = Callable[[_Observation], float]


class Watch:
    """Learns from the past what is usual at a site, and finds changes in later jobs.

    Args:
        past: jobs of the past weeks, in any order.
        limit: evidence (log-likelihood ratio, in nats) above which there is an alarm.
        learns: raise the limits for changes that already occurred between the first and the second
            half of the past.
    """

    def __init__(self, past: Iterable[Seen], limit: float = LIMIT, *, learns: bool = True):
        self._limit = limit
        ordered = sorted(past, key=lambda job: job.submitted)
        self._usual: defaultdict[Hashable, list[float]] = defaultdict(list)
        self._sizes, self._types = _Mix(), _Mix()
        hours: Counter[int] = Counter()
        for job in ordered:
            for key in _alike(job):
                self._usual[key].append(log1p(job.seconds))
            self._sizes.add(job.vc, job.gpus)
            self._types.add(job.vc, job.gpu_type)
        for logs in self._usual.values():
            logs.sort()
        observed = self._observations(ordered)
        for one in observed:
            hours[int(one.at % DAY_S // HOUR_S)] += 1
        total = sum(hours.values())
        self._hours = [(hours[h] + 1.0) / (total + 24.0) for h in range(24)]
        self._spreads: dict[str, tuple[float, float]] = {}
        by_group: defaultdict[str, list[float]] = defaultdict(list)
        for one in observed:
            for group in groups_of(one.jobs[0]):
                by_group[group].append(one.z)
        for group, values in by_group.items():
            self._spreads[group] = _shrunk(values)
        self._users = {job.user for job in ordered}
        self._new = _newcomers(ordered)
        self._last = ordered[-1].submitted if ordered else None
        self._rate = total / max(1.0, (observed[-1].at - observed[0].at) / DAY_S) if total else 0.0
        self._limits = self._restless(ordered) if learns else {}

    def _restless(self, ordered: Sequence[Seen]) -> dict[str, float]:
        """Return a raised alarm limit for each kind of change that the past itself seems to
        contain: {change in words: limit in nats}.

        The second half of the past is checked, day by day, against the first. The limit is
        `RESTLESS` times the largest evidence found.
        """
        half = (ordered[0].submitted + ordered[-1].submitted) / 2 if ordered else 0.0
        days: defaultdict[float, list[Seen]] = defaultdict(list)
        for job in ordered:
            if job.submitted >= half:
                days[job.submitted // DAY_S].append(job)
        early = [job for job in ordered if job.submitted + job.seconds < half]
        before, found = Watch(early, self._limit, learns=False), dict[str, float]()
        for jobs in days.values() if early else ():
            for alarm in before._found(jobs, limits={}):
                found[alarm.what] = max(found.get(alarm.what, 0.0), RESTLESS * alarm.sum)
        return found

    def alarms(self, recent: Iterable[Seen]) -> list[Alarm]:
        """Return the alarms about jobs that were submitted after the past: of a silence, then
        those with most evidence, but of users last: what changes in a virtual cluster changes for
        its users, too."""
        jobs = sorted(recent, key=lambda job: job.submitted)
        silent = self._silence(jobs)
        return [*silent, *self._found(jobs, self._limits)]

    def _silence(self, jobs: Sequence[Seen]) -> list[Alarm]:
        """Return [alarm] if no job came for an improbably long time before the first of `jobs`;
        else [].

        A gap above `LONGEST_SILENCE_S` raises no alarm: then nothing was recorded, or nobody
        worked.
        """
        if self._last is None or not jobs:
            return []
        since, until = self._last, jobs[0].submitted
        hours = [int((since + s) % DAY_S // HOUR_S) for s in range(0, int(until - since), 600)]
        odds = self._rate * sum(self._hours[hour] for hour in hours) / 6.0
        if odds <= self._limit or until - since > LONGEST_SILENCE_S:
            return []
        return [
            Alarm(
                group=ALL,
                what=f"did not come for {(until - since) / HOUR_S:.0f} h",
                since=since,
                sum=odds,
                seen=0,
            )
        ]

    def _found(self, jobs: Sequence[Seen], limits: Mapping[str, float]) -> list[Alarm]:
        observed = self._observations(jobs)
        by_group: defaultdict[str, list[_Observation]] = defaultdict(list)
        for one in observed:
            for group in groups_of(one.jobs[0]):
                by_group[group].append(one)
        found = list[Alarm]()
        for group, mine in by_group.items():
            for what, says in self._questions(group):
                alarm = self._sum(group, what, says, mine)
                if alarm is not None and alarm.sum > limits.get(what, 0.0):
                    found.append(alarm)
        moved = self._moved(observed)
        found += [moved] if moved is not None else []
        return sorted(found, key=lambda alarm: (alarm.group.startswith(USER), -alarm.sum))

    def _questions(self, group: str) -> Iterable[tuple[str, Says]]:
        """Yield (change in words, function) for each change that is looked for in `group`. The
        function returns the log-likelihood ratio of an observation, above 0 if it speaks for the
        change."""
        mean, spread = self._spreads.get(group, (0.0, 1.0))
        if group in self._spreads:
            yield "last longer", lambda one: _shifted((one.z - mean) / spread)
            yield "last shorter", lambda one: _shifted((mean - one.z) / spread)
        if group.startswith(VC) or group == ALL:
            yield "ask for other numbers of GPUs", lambda one: self._sizes.says(one, "gpus")
            yield "ask for one GPU only", lambda one: self._sizes.only(one, "gpus", 1)
            yield "ask for other GPU types", lambda one: self._types.says(one, "gpu_type")
        if group.startswith(VC) and self._users != {""}:
            yield "are of users never seen before", self._of_newcomers

    def _moved(self, observed: Sequence[_Observation]) -> Alarm | None:
        """Return an alarm if jobs come at other hours of the day than is usual; else None.

        All hours are compared at once, not summed job by job: in each night some hours alone would
        speak for a shifted day.
        """
        if not observed or observed[-1].at - observed[0].at < WHOLE_S:
            return None
        hours = [int(one.at % DAY_S // HOUR_S) for one in observed]
        best, by = max(
            (sum(log(self._hours[(at - by) % 24] / self._hours[at]) for at in hours), by)
            for by in (*range(-11, -1), *range(2, 13))
        )
        if best * ALIKE <= self._limit:
            return None
        what = f"come {abs(by)} h {'earlier' if by < 0 else 'later'} in the day"
        return Alarm(
            group=ALL, what=what, since=observed[0].at, sum=best * ALIKE, seen=len(observed)
        )

    def _of_newcomers(self, one: _Observation) -> float:
        if one.jobs[0].user in self._users:
            return log((1.0 - NEWCOMERS) / (1.0 - self._new))
        return log(NEWCOMERS / self._new)

    def _sum(
        self, group: str, what: str, says: Says, observed: Sequence[_Observation]
    ) -> Alarm | None:
        limit = self._limit * (OF_ONE if group.startswith(USER) else 1.0)
        total, since, seen, ratios, best = 0.0, 0.0, 0, list[float](), None
        by_user: defaultdict[str, float] = defaultdict(float)
        for one in observed:
            if total <= 0:
                total, since, seen, ratios = 0.0, one.at, 0, []
                by_user.clear()
            more, who = max(-CAP, min(CAP, says(one))), one.jobs[0].user
            if who and not group.startswith(USER):  # what one user does is that user's
                more = min(more, MOST_OF_ONE * self._limit - by_user[who])
                by_user[who] += more
            total += more
            seen += 1
            ratios.append(one.log_ratio)
            if total > limit and (best is None or total > best.sum):
                ratio = exp(fmean(ratios)) if what.startswith("last") else 1.0
                best = Alarm(group=group, what=what, since=since, sum=total, seen=seen, ratio=ratio)
        return best

    def _observations(self, ordered: Sequence[Seen]) -> list[_Observation]:
        """Return the observations in `ordered` jobs, in order of submission: one for each burst of
        near-copies that one user submitted within an hour."""
        bursts: dict[Hashable, list[Seen]] = {}
        for job in ordered:
            who = job.user or job.gpus
            bursts.setdefault((job.vc, who, job.submitted // HOUR_S), []).append(job)
        found = []
        for jobs in bursts.values():
            residuals = [self._residual(job) for job in jobs]
            z, log_ratio = (fmean(column) for column in zip(*residuals, strict=True))
            found.append(_Observation(jobs[0].submitted, tuple(jobs), z, log_ratio))
        return found

    def _residual(self, job: Seen) -> tuple[float, float]:
        """Return (rank of a job's duration among those of similar past jobs, as a normal score;
        ln(duration / usual duration)). Both are 0 if too few past jobs are similar."""
        known = (self._usual.get(key, []) for key in _alike(job))
        usual = next((logs for logs in known if len(logs) >= ENOUGH), None)
        if usual is None:
            return 0.0, 0.0
        lasted = log1p(job.seconds)
        rank = (bisect_left(usual, lasted) + bisect_right(usual, lasted)) / 2
        z = _NORMAL.inv_cdf((rank + 0.5) / (len(usual) + 1))
        return max(-FURTHEST, min(FURTHEST, z)), lasted - usual[len(usual) // 2]


def _alike(job: Seen) -> tuple[Hashable, ...]:
    """Return the keys of the groups with which a job's duration is compared, the narrowest group
    first."""
    of_site: tuple[Hashable, ...] = ((job.vc, job.gpus), job.vc, None)
    if not job.user:
        return of_site
    return ((job.vc, job.user, job.gpus), (job.vc, job.user), *of_site)


VC, USER, SIZE, TYPE, ALL = "virtual cluster ", "user ", "jobs of GPUs: ", "GPU type ", "all jobs"
_KINDS = {VC: "virtual cluster", USER: "user", SIZE: "size", TYPE: "GPU type", ALL: "site"}
KINDS = tuple(_KINDS.values())


def groups_of(job: Seen) -> list[str]:
    """Return the names of the groups that a job belongs to: all jobs, its virtual cluster, its
    size, its user and its GPU type."""
    found = [ALL, VC + job.vc, f"{SIZE}{job.gpus}"]
    found += [USER + job.user] if job.user else []
    return found + ([TYPE + job.gpu_type] if job.gpu_type else [])


class _Mix:
    """Counts of a property of jobs (GPUs, GPU type), by virtual cluster and for the whole site.

    `only` and `says` return log-likelihood ratios, above 0 if an observation speaks for a change.
    """

    def __init__(self) -> None:
        self._counts: defaultdict[str, Counter[object]] = defaultdict(Counter)
        self._site: Counter[object] = Counter()

    def add(self, vc: str, value: object) -> None:
        self._counts[vc][value] += 1
        self._site[value] += 1

    def only(self, one: _Observation, name: str, value: object) -> float:
        """Return the log-likelihood ratio of an observation for the change that all jobs now have
        the value `value` of the property `name`."""
        mine = self._counts[one.jobs[0].vc]
        usual = (mine[value] + 1.0) / (sum(mine.values()) + 2.0)
        alone = all(getattr(job, name) == value for job in one.jobs)
        return log(ALMOST / usual) if alone else log((1.0 - ALMOST) / (1.0 - usual))

    def says(self, one: _Observation, name: str) -> float:
        """Return the log-likelihood ratio of an observation for the change that all values of the
        property `name` are now equally likely: the mean over the observation's values, at most
        `MOST_OF_MIX`."""
        mine, known = self._counts[one.jobs[0].vc], len(self._site) + 1
        if known <= 2:
            return 0.0
        site = sum(self._site.values()) + known
        total = sum(mine.values()) + PRIOR
        ratios = []
        for value in {getattr(job, name) for job in one.jobs}:
            usual = (mine[value] + PRIOR * (self._site[value] + 1) / site) / total
            ratios.append(log(1.0 / known / usual))
        return min(MOST_OF_MIX, fmean(ratios))


def _shifted(z: float) -> float:
    """Return the log-likelihood ratio of a residual for the change that durations grew by `SHIFT`
    standard deviations.

    Args:
        z: the residual, a normal score.
    """
    return SHIFT * (z - SHIFT / 2)


def _shrunk(values: Sequence[float]) -> tuple[float, float]:
    """Return (mean, standard deviation) of a group's observations, drawn towards 0 and 1 if there
    are few."""
    n = len(values)
    mean = sum(values) / (n + PRIOR)
    spread = ((pstdev(values) ** 2 * n + PRIOR) / (n + PRIOR)) ** 0.5
    return mean, max(LEAST_SPREAD, spread)


def _newcomers(ordered: Sequence[Seen]) -> float:
    """Return the share of past observations that belong to users not seen before, at most half of
    `NEWCOMERS`. Return `NEWCOMERS` if there are no past jobs."""
    if not ordered:
        return NEWCOMERS
    from_s = ordered[0].submitted + KNOWN_AFTER_S
    known, bursts = set[str](), dict[tuple[str, float], bool]()
    for job in ordered:
        bursts.setdefault((job.user, job.submitted // HOUR_S), job.user not in known)
        if job.submitted < from_s or job.submitted % DAY_S < HOUR_S:
            known.add(job.user)
    later = [new for (_, hour), new in bursts.items() if hour * HOUR_S >= from_s]
    return float(min(NEWCOMERS / 2, (sum(later) + 1.0) / (len(later) + 20.0)))
