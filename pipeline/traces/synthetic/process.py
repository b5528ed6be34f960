"""The random process of the synthetic trace: who submits which job, when, and how long it runs.

Jobs come in sessions: a user picks a template (one of their recurring scripts) and submits it a few
times in a row, or, in a burst, hundreds of times within the hour. A template has its own typical
duration, GPU count and weeks of activity. Everything is drawn in arrays, no loop runs over jobs.

Only `random` and `standard_normal` of PCG64 are used and every result is rounded to what the trace
stores, so that the same seed gives the same trace on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from features.schema import State
from pipeline.traces.synthetic.config import DAY_S, SyntheticConfig, SyntheticError, Vc

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

STATES = (State.COMPLETED, State.CANCELLED, State.FAILED)
_COMPLETED, _CANCELLED, _FAILED = range(3)

# Submissions per hour of the day, relative: quiet nights, dips at lunch and at dinner.
HOURS = np.array(
    [5, 4, 3, 2.5, 2, 2, 2.5, 3.5, 6, 10, 13, 12, 8.5, 11, 14, 14, 13.5, 12, 8, 9, 10.5, 10, 9, 7]
)
# Monday to Sunday.
WEEKDAYS = np.array([1.0, 1.05, 1.05, 1.0, 0.95, 0.5, 0.45])

# Gang sizes and the share of submissions of templates that have them.
SIZES = np.array([1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64])
SIZE_WEIGHTS = np.array([57, 9, 0.6, 11, 0.4, 15, 0.2, 4.0, 0.2, 2.2, 0.1, 0.5])

SESSION_MEDIAN, SESSION_SIGMA, SESSION_MAX = 1.8, 1.1, 80  # jobs beyond the first
GAP_MEDIAN_S, GAP_SIGMA = 700.0, 1.2  # between submissions of a session
# Who expects a long run waits longer before the next, and submits fewer of them in a row.
PATIENCE, RESTRAINT = 0.5, 0.3
BURST_GAP_S = 10.0  # mean; a burst of 300 jobs takes under an hour
ACTIVE_MEDIAN_DAYS, ACTIVE_SIGMA = 14.0, 0.8  # how long a template is in use

# Spread of the log duration, by level. Their sum of squares gives the published ratio of mean to
# median; the template's share of it is what a history-based predictor can learn.
USER_SIGMA, TEMPLATE_SIGMA, JOB_SIGMA = 0.7, 2.0, (0.9, 2.5)
VC_SIGMA = 0.25  # of the log of the VCs' median durations
PER_DOUBLING = 0.4  # log duration per doubling of the gang
SHORT_EXPONENT = 0.55  # below the median the log duration is compressed: starting takes time
SHORTEST_S = 3.0
STRETCH = (0.2, 3.5)  # exponents that a VC's tail may get to reach its load
CRASH_MEDIAN_S, CRASH_SIGMA, CRASH_SHARE = 45.0, 0.9, 0.35
CANCEL_BY_DURATION = 0.5  # logit of being cancelled, per unit of standardised log duration


@dataclass(frozen=True, slots=True)
class Templates:
    """Templates (recurring scripts of users): each array has one element per template.

    Attributes:
        user, vc: owner and virtual cluster, as indices.
        gpus: usual number of GPUs.
        log_duration: typical logarithm of the duration, before calibration.
        noise: standard deviation of the log duration between runs.
        first_s, last_s: when the template is in use, seconds since the start of the trace.
        weight: share of its virtual cluster's sessions.
    """

    user: Ints
    vc: Ints
    gpus: Ints
    log_duration: Floats
    noise: Floats
    first_s: Floats
    last_s: Floats
    weight: Floats

    def __len__(self) -> int:
        return len(self.user)


@dataclass(frozen=True, slots=True)
class Drawn:
    """The generated jobs, in order of submission: each array has one element per job. Some of the
    fields are not in the trace.

    Attributes:
        user, vc, template, session: indices of the job's user, VC, template and session.
        burst: whether the job belongs to a burst.
        gpus: number of GPUs.
        submit_s: whole seconds since the start of the trace.
        duration_s: whole seconds that the job runs on GPUs of its own.
        state: index into STATES.
        templates: number of templates.
    """

    user: Ints
    vc: Ints
    template: Ints
    session: Ints
    burst: NDArray[np.bool_]
    gpus: Ints
    submit_s: Ints
    duration_s: Ints
    state: Ints
    templates: int


def draw(config: SyntheticConfig) -> Drawn:
    """Draw the jobs of a trace at random, and return them. Raise SyntheticError if the configured
    load of a VC cannot be reached."""
    streams = np.random.SeedSequence(config.seed).spawn(4)
    who, when, size, how_long = (np.random.Generator(np.random.PCG64(s)) for s in streams)
    templates = _templates(config, who)
    template, session, burst, submit_s = _submissions(config, templates, when)
    gpus = _gangs(config, templates, template, burst, rng=size)
    spread = templates.noise[template] * how_long.standard_normal(len(template))
    natural = templates.log_duration[template] + spread  # log durations if nothing went wrong
    state, log_duration = _outcomes(config, natural, session, how_long)
    vc = templates.vc[template]
    return Drawn(
        user=templates.user[template],
        vc=vc,
        template=template,
        session=session,
        burst=burst,
        gpus=gpus,
        submit_s=submit_s,
        duration_s=_calibrate(config, log_duration, vc, gpus, rng=how_long),
        state=state,
        templates=len(templates),
    )


def pick(rng: np.random.Generator, weights: Floats, n: int) -> Ints:
    """Return n random indices, drawn with the given relative weights."""
    edges = np.cumsum(weights)
    found: Ints = np.searchsorted(edges, rng.random(n) * edges[-1], side="right")
    return np.minimum(found, len(weights) - 1)


def lognormal(rng: np.random.Generator, median: float, sigma: float, n: int) -> Floats:
    """Return n random values from a lognormal distribution with this median and this standard
    deviation of the logarithm, shape (n,).
    """
    return median * np.exp(sigma * rng.standard_normal(n))


def _templates(config: SyntheticConfig, rng: np.random.Generator) -> Templates:
    shares = np.array([vc.share for vc in config.vcs], dtype=float)
    n = max(len(config.vcs), round(config.jobs / config.jobs_per_template))

    home = pick(rng, shares, config.users)
    home[: len(shares)] = np.arange(len(shares))
    activity = lognormal(rng, 1.0, config.user_skew, config.users)
    pace = USER_SIGMA * rng.standard_normal(config.users)
    ambition = rng.standard_normal(config.users)  # some users go for large gangs

    user = pick(rng, activity, n)
    once = min(n, config.users)  # everyone has a template, as far as they go round
    user[:once] = np.arange(once)
    vc = home[user]
    away = rng.random(n) < config.away_share
    away[: len(shares)] = False  # so that no virtual cluster is without a template
    vc = np.where(away, pick(rng, shares, n), vc)

    weight = lognormal(rng, 1.0, 1.0, n)
    weight *= (shares / np.bincount(vc, weight, len(shares)))[vc]
    score = 0.5 * ambition[user] + np.sqrt(0.75) * rng.standard_normal(n)
    gpus = _sizes_for(config, vc, weight, score)
    log_duration = (
        pace[user] + TEMPLATE_SIGMA * rng.standard_normal(n) + PER_DOUBLING * np.log2(gpus)
    )
    low, high = JOB_SIGMA
    noise = low + (high - low) * rng.random(n)

    span = config.days * DAY_S
    active = DAY_S * lognormal(rng, ACTIVE_MEDIAN_DAYS, ACTIVE_SIGMA, n)
    first = rng.random(n) * (span + active) - active
    last = np.minimum(first + active, span)
    return Templates(
        user=user,
        vc=vc,
        gpus=gpus,
        log_duration=log_duration,
        noise=noise,
        first_s=np.maximum(first, 0.0),
        last_s=last,
        weight=weight,
    )


def _sizes_for(config: SyntheticConfig, vc: Ints, weight: Floats, score: Floats) -> Ints:
    """Return the number of GPUs of each template. Within each VC, templates with a higher `score`
    get more GPUs, and each size gets its intended share of the submissions (`weight`)."""
    edges = np.cumsum(SIZE_WEIGHTS) / SIZE_WEIGHTS.sum()
    gpus = np.empty(len(vc), dtype=np.int64)
    for index in range(len(config.vcs)):
        here = np.flatnonzero(vc == index)
        here = here[np.argsort(score[here], kind="stable")]
        before = np.cumsum(weight[here]) - weight[here] / 2
        rank = before / weight[here].sum()
        gpus[here] = SIZES[np.minimum(np.searchsorted(edges, rank), len(SIZES) - 1)]
    return _fit(config, vc, gpus)


def _fit(config: SyntheticConfig, vc: Ints, gpus: Ints) -> Ints:
    """Return the numbers of GPUs, none above a quarter of the job's virtual cluster."""
    quarter = np.array([max(1, v.nodes * config.gpus_per_node // 4) for v in config.vcs])
    largest: Ints = SIZES[np.searchsorted(SIZES, quarter, side="right") - 1]
    return np.minimum(gpus, largest[vc])


def _submissions(
    config: SyntheticConfig, templates: Templates, rng: np.random.Generator
) -> tuple[Ints, Ints, NDArray[np.bool_], Ints]:
    """Return (template, session, burst, submit_s) of exactly `config.jobs` jobs, in order of submit
    time."""
    bursts = round(config.bursts_per_week * config.days / 7)
    low, high = config.burst_jobs
    burst_size = (low + (high - low + 1) * rng.random(bursts)).astype(np.int64)
    burst_template = pick(rng, _burst_weights(templates), bursts)

    length = SESSION_MEDIAN * np.exp(-RESTRAINT * _expected(templates)) / np.sqrt(templates.gpus)
    weight = templates.weight / (1 + length)  # shares are of jobs, not of sessions
    sessions = 64
    while True:
        template = pick(rng, weight, sessions)
        more = length[template] * lognormal(rng, 1.0, SESSION_SIGMA, sessions)
        size = 1 + np.minimum(more, SESSION_MAX).astype(np.int64)
        made = _expand(
            config,
            templates,
            template=np.concatenate([burst_template, template]),
            size=np.concatenate([burst_size, size]),
            bursts=bursts,
            rng=rng,
        )
        if len(made[0]) >= config.jobs:
            break
        sessions = int(max(1.5 * sessions, 0.3 * config.jobs))
    # A random subset, so that thinning changes no proportion.
    kept = np.sort(np.argsort(rng.random(len(made[0])), kind="stable")[: config.jobs])
    template, session, burst, submit_s = made
    order = kept[np.argsort(submit_s[kept], kind="stable")]
    return template[order], session[order], burst[order], submit_s[order]


def _expected(templates: Templates) -> Floats:
    """Return, for each template, ln(its duration / the median template's); 0 for those below the
    median."""
    return np.maximum(templates.log_duration - np.median(templates.log_duration), 0.0)


def _burst_weights(templates: Templates) -> Floats:
    """Return the relative probability of each template to be submitted in a burst. Only templates
    of one GPU and middling duration have one, or all if there are none: a burst of long jobs would
    never end."""
    low, high = np.quantile(templates.log_duration, [0.3, 0.8])
    fits = (templates.log_duration >= low) & (templates.log_duration <= high)
    weight = templates.weight * (fits & (templates.gpus == 1))
    return weight if weight.sum() > 0 else templates.weight


def _expand(
    config: SyntheticConfig,
    templates: Templates,
    template: Ints,
    size: Ints,
    bursts: int,
    rng: np.random.Generator,
) -> tuple[Ints, Ints, NDArray[np.bool_], Ints]:
    """Return (template, session, burst, submit_s) of every job of the sessions. Jobs after the end
    of the trace are dropped.

    Args:
        template: template of each session.
        size: number of jobs of each session.
        bursts: number of bursts; they are the first sessions.
    """
    start = _in_season(config, templates.first_s[template], templates.last_s[template], rng)
    session = np.repeat(np.arange(len(size)), size)
    burst = session < bursts
    n = len(session)
    patience = np.exp(PATIENCE * _expected(templates))[template][session]
    gap = lognormal(rng, GAP_MEDIAN_S, GAP_SIGMA, n) * patience
    gap[burst] = -BURST_GAP_S * np.log1p(-rng.random(int(burst.sum())))
    first = np.cumsum(size) - size
    gap[first] = 0.0
    elapsed = np.cumsum(gap)
    submit_s = np.floor(start[session] + elapsed - elapsed[first][session]).astype(np.int64)
    inside = submit_s < config.days * DAY_S
    return template[session][inside], session[inside], burst[inside], submit_s[inside]


def _in_season(
    config: SyntheticConfig, first_s: Floats, last_s: Floats, rng: np.random.Generator
) -> Floats:
    """Return a random time between each `first_s` and `last_s`, in seconds. Busy hours of the day
    and days of the week get more of them."""
    hour = np.arange(config.days * 24)
    weekday = (config.start.weekday() + hour // 24) % 7
    intensity = HOURS[hour % 24] * WEEKDAYS[weekday]
    edges = np.arange(config.days * 24 + 1) * 3600.0
    cumulative = np.concatenate([[0.0], np.cumsum(intensity)])
    low, high = np.interp(first_s, edges, cumulative), np.interp(last_s, edges, cumulative)
    return np.asarray(np.interp(low + (high - low) * rng.random(len(low)), cumulative, edges))


def _gangs(
    config: SyntheticConfig,
    templates: Templates,
    template: Ints,
    burst: NDArray[np.bool_],
    rng: np.random.Generator,
) -> Ints:
    """Return the number of GPUs of each job: usually the template's, sometimes half or twice as
    many; 1 in bursts."""
    gpus = templates.gpus[template]
    changed = rng.random(len(gpus))
    gpus = np.where(changed < 0.05, np.maximum(gpus // 2, 1), gpus)
    gpus = np.where(changed > 0.95, gpus * 2, gpus)
    return np.where(burst, 1, _fit(config, templates.vc[template], gpus))


def _outcomes(
    config: SyntheticConfig, natural: Floats, session: Ints, rng: np.random.Generator
) -> tuple[Ints, Floats]:
    """Return (state, log duration) of each job. Failed jobs come together in sessions and end
    early; long jobs are cancelled more often.

    Args:
        natural: log durations of the jobs if they completed.
    """
    n = len(natural)
    natural = natural - np.median(natural) + np.log(config.median_duration_s * 1.5)

    trouble = rng.standard_normal(int(session.max()) + 1)[session] + rng.standard_normal(n)
    failed = np.zeros(n, dtype=bool)
    failed[np.argsort(-trouble, kind="stable")[: round(config.failed_share * n)]] = True

    uniform = np.clip(rng.random(n), 1e-12, 1 - 1e-12)
    regret = np.log(uniform / (1 - uniform))
    regret += CANCEL_BY_DURATION * (natural - natural.mean()) / max(float(natural.std()), 1e-9)
    regret[failed] = -np.inf
    cancelled = np.zeros(n, dtype=bool)
    cancelled[np.argsort(-regret, kind="stable")[: round(config.cancelled_share * n)]] = True

    part = rng.random(n)
    crash = np.log(CRASH_MEDIAN_S) + CRASH_SIGMA * rng.standard_normal(n)
    early = rng.random(n) < CRASH_SHARE
    log_duration = natural.copy()
    log_duration[cancelled] += np.log(0.2 + 0.8 * part[cancelled])
    at = failed & early
    log_duration[at] = np.minimum(crash[at], natural[at])
    at = failed & ~early
    log_duration[at] += np.log(0.02 + 0.98 * part[at])
    state = np.where(failed, _FAILED, np.where(cancelled, _CANCELLED, _COMPLETED))
    return state.astype(np.int64), log_duration


def _calibrate(
    config: SyntheticConfig, log_duration: Floats, vc: Ints, gpus: Ints, rng: np.random.Generator
) -> Ints:
    """Return durations in whole seconds, with the median and every VC's offered load as configured.

    The distance of a log duration from its VC's median is multiplied: above the median by one
    exponent per VC, below it by a fixed one. Both keep the order of durations within a VC, and so
    how well it can be predicted.
    """
    offset = VC_SIGMA * rng.standard_normal(len(config.vcs))
    duration = np.empty(len(vc))
    for index, spec in enumerate(config.vcs):
        here = np.flatnonzero(vc == index)
        if not len(here):
            raise SyntheticError(f"vcs: {spec.name!r} gets no jobs; give it a larger share")
        middle = float(np.log(config.median_duration_s) + offset[index])
        excess = log_duration[here] - np.median(log_duration[here])
        exponent = _exponent(config, spec, middle, excess, gpus=gpus[here])
        if exponent is None:
            raise SyntheticError(
                f"vcs: {spec.name!r} cannot reach load {spec.load:.3g}: its {len(here)} jobs are "
                f"too many or too few for {spec.nodes} nodes over {config.days} days; change jobs, "
                "share, nodes or days"
            )
        duration[here] = _stretched(config, middle, exponent, excess)
    return np.maximum(np.rint(duration), SHORTEST_S).astype(np.int64)


def _stretched(config: SyntheticConfig, middle: float, exponent: float, excess: Floats) -> Floats:
    """Return durations in seconds. `middle` is the log of the median duration, `excess` how far the
    log duration of each job is above it, which is multiplied by `exponent`.

    Durations approach the longest one smoothly. If they were cut there, many jobs would have
    exactly that duration.
    """
    log_duration = middle + np.where(excess > 0, exponent, SHORT_EXPONENT) * excess
    seconds = np.exp(np.minimum(log_duration, 30.0))
    return np.asarray(seconds / (1 + seconds / config.max_duration_s))


def _exponent(
    config: SyntheticConfig, spec: Vc, middle: float, excess: Floats, gpus: Ints
) -> float | None:
    """Return the exponent by which durations are stretched so that the jobs of a VC make its
    configured load. Return None if no exponent within `STRETCH` does."""
    capacity = spec.nodes * config.gpus_per_node * config.days * DAY_S

    def load(exponent: float) -> float:
        duration = _stretched(config, middle, exponent, excess)
        return float((gpus * np.maximum(duration, SHORTEST_S)).sum()) / capacity

    low, high = STRETCH
    if not load(low) <= spec.load <= load(high):
        return None
    for _ in range(50):
        mid = (low + high) / 2
        low, high = (mid, high) if load(mid) < spec.load else (low, mid)
    # Rounded, so that the last bits of exp, which differ between machines, cannot be seen.
    return round(low, 7)
