"""Rows against a plain recomputation from the record, and against the deletion of the future."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.history import EWMA_STEP, FAILED, OUTLOOK_CAP, RESIDUAL, WINDOW
from features.job import Job, Profile
from features.lifetimes import lifetimes
from features.replay import Lifetime, Moment, replay
from features.schema import State
from features.spec import FeatureSpec, Value
from features.state import BURST_WINDOW_S, FAMILIES, FeatureState
from features.survival import (
    _MIDDLE_LOG,
    _PRIOR,
    EDGES_S,
    MEMORY,
    OF_VC,
    SHRINKAGE,
    SUM,
    THRESHOLDS_S,
)
from tests.features.causality import CausalityError, assert_causal

EPOCH = 1_598_918_400.0  # 1 September 2020
BOTH = (Moment.SUBMIT, Moment.PROFILED)
# "train-#" and "train-resnet" are less alike than templates are merged for
NAMES = ["", "train_1", "train_2", "train-resnet", "eval.7"]


@st.composite
def a_lifetime(draw: Any, number: int) -> Lifetime:
    # few distinct times and identities, so that instants and keys are shared
    submit = EPOCH + draw(st.integers(0, 40)) * 300
    job = Job(
        f"j{number}",
        submit,
        draw(st.sampled_from([1, 2, 8])),
        user=draw(st.sampled_from(["ann", "bob", ""])),
        vc=draw(st.sampled_from(["v1", "v2"])),
        name=draw(st.sampled_from(NAMES)),
        cpus=draw(st.sampled_from([None, 4.0])),
        gpu_type=draw(st.sampled_from([None, "A100"])),
        time_limit_s=draw(st.sampled_from([None, 3600.0])),
    )
    state = draw(st.sampled_from([State.COMPLETED, State.FAILED, State.CANCELLED]))
    kind = draw(st.sampled_from(["ends", "ends", "ends", "runs", "waits", "withdrawn"]))
    start = submit + draw(st.sampled_from([0, 0, 1, 300, 900]))
    if kind == "waits":
        return Lifetime(job, state=State.PENDING)
    if kind == "withdrawn":
        return Lifetime(job, None, start, State.CANCELLED)
    profile = Profile(50.0, 20.0, 8000.0, draw(st.sampled_from([None, True, False])))
    profiled = start + draw(st.sampled_from([0, 100]))
    if kind == "runs":
        return Lifetime(job, start, None, State.RUNNING, None, profile, profiled)
    duration = float(draw(st.sampled_from([0, 1, 50, 299, 300, 301, 4000, 30000])))
    end = start + duration
    if end <= profiled:
        return Lifetime(job, start, end, state, duration)
    return Lifetime(job, start, end, state, duration, profile, profiled)


@st.composite
def a_world(draw: Any) -> list[Lifetime]:
    count = draw(st.integers(1, 25))
    return [draw(a_lifetime(number)) for number in range(count)]


# -- a second, plain implementation -----------------------------------------------------------


def template(job: Job) -> Any:
    name = {"train_1": "train", "train_2": "train"}.get(job.name, job.name)
    if not job.user and not name and job.cpus is None:
        return job.job_id
    return job.user, not job.user and job.vc, name or (job.gpus, job.cpus)


# a job without what makes a key is alone
KEYS: dict[str, Callable[[Job], Any]] = {
    "user": lambda job: job.user or job.job_id,
    "user_gpus": lambda job: (job.user or job.job_id, job.gpus),
    "template": template,
    "vc": lambda job: job.vc,
}


def plain_row(world: Sequence[Lifetime], position: int) -> dict[str, Any]:
    """Features of the job at `position` when it is submitted, recomputed from the record."""
    me = world[position].job
    now = me.submit_time
    before = [
        life
        for i, life in enumerate(world)
        if (life.job.submit_time, i) < (now, position) and i != position
    ]
    begun = [life for life in before if life.start_time is not None and life.start_time < now]
    gone = [life for life in before if life.end_time is not None and life.end_time < now]
    row: dict[str, Any] = {
        "gpus": me.gpus,
        "cpus": me.cpus,
        "memory_mib": None,
        "gpu_type": me.gpu_type,
        "time_limit_s": me.time_limit_s,
        "user": me.user or None,
        "vc": me.vc,
        "gpu_util_pct": None,
        "gpu_mem_util_pct": None,
        "gpu_mem_mib": None,
        "amp": None,
    }
    for prefix, key in KEYS.items():
        mine = [life for life in before if key(life.job) == key(me)]
        row |= plain_history(prefix, mine, [x for x in mine if x in gone], now)
        row |= plain_running(prefix, mine, begun, gone, row[f"{prefix}_ewma_log_s"], now)
    queued = [life for life in before if life not in begun and life not in gone]
    running = [life for life in begun if life not in gone]
    for name, lives in (("queued", queued), ("running", running)):
        gpus = [life.job.gpus for life in lives if life.job.vc == me.vc]
        row |= {f"vc_{name}": len(gpus), f"vc_{name}_gpus": sum(gpus)}
    row |= plain_survival(world, [world.index(life) for life in before], me, now)
    sent = [life for life in before if life.job.submit_time > now - BURST_WINDOW_S]
    row["user_submitted_1h"] = sum(x.job.user == me.user for x in sent) if me.user else None
    local = datetime.fromtimestamp(now, UTC)
    row["submit_hour"] = local.hour + local.minute / 60
    row["submit_weekday"] = local.strftime("%a")
    return row


def plain_history(
    prefix: str, mine: list[Lifetime], gone: list[Lifetime], now: float
) -> dict[str, Any]:
    learned = sorted(
        (life for life in gone if life.duration_s is not None), key=lambda life: life.end_time
    )
    lasted = np.array([life.duration_s for life in learned], dtype=float)
    out: dict[str, Any] = {
        "ended": len(learned),
        "since_submit_s": now - max((x.job.submit_time for x in mine), default=math.nan),
        "since_end_s": now - max((x.end_time for x in learned), default=math.nan),
    }
    if learned:
        window, states = lasted[-WINDOW:], [life.state for life in learned[-WINDOW:]]
        mean, mean_log = lasted[0], math.log1p(lasted[0])
        for value in lasted[1:]:
            mean = (1 - EWMA_STEP) * mean + EWMA_STEP * value
            mean_log = (1 - EWMA_STEP) * mean_log + EWMA_STEP * math.log1p(value)
        out |= {"last_s": lasted[-1], "ewma_s": mean, "ewma_log_s": math.expm1(mean_log)}
        out |= {f"p{q}_s": np.percentile(window, q) for q in (25, 50, 90)}
        out |= {"over_1h_ratio": np.mean(window > 3600), "over_6h_ratio": np.mean(window > 21600)}
        out["failed_ratio"] = np.mean([state in FAILED for state in states])
        out["cancelled_ratio"] = np.mean([state == State.CANCELLED for state in states])
    else:
        names = "last_s ewma_s ewma_log_s p25_s p50_s p90_s over_1h_ratio over_6h_ratio"
        out |= dict.fromkeys([*names.split(), "failed_ratio", "cancelled_ratio"])
    return {f"{prefix}_{name}": value for name, value in out.items()}


def plain_running(
    prefix: str,
    mine: list[Lifetime],
    begun: list[Lifetime],
    gone: list[Lifetime],
    typical: float | None,
    now: float,
) -> dict[str, Any]:
    elapsed = [now - life.start_time for life in mine if life in begun and life not in gone]
    ended = sum(life in gone and life.duration_s is not None for life in mine)
    out: dict[str, Any] = {
        "running": len(elapsed),
        "queued": sum(life not in begun and life not in gone for life in mine),
        "longest_running_s": max(elapsed, default=None),
        "mean_running_s": np.mean(elapsed) if elapsed else None,
        "outlook_s": typical,
    }
    if elapsed:
        bound = RESIDUAL * np.mean(elapsed)
        low = bound if typical is None else typical
        share = min(len(elapsed), OUTLOOK_CAP)
        share = share / (share + min(ended, OUTLOOK_CAP))
        out["outlook_s"] = (1 + low) * ((1 + max(bound, low)) / (1 + low)) ** share - 1
    return {f"{prefix}_{name}": value for name, value in out.items()}


def plain_survival(
    world: Sequence[Lifetime], before: list[int], me: Job, now: float
) -> dict[str, float]:
    """Every stretch completed or ended in before `now`, in the order in which it happened."""
    told: list[tuple[float, int, float, int, int, bool]] = []  # ..., job, stretch, ended
    for i in before:
        life = world[i]
        if life.start_time is None:
            continue
        over = life.end_time if life.end_time is not None else math.inf
        for b, edge in enumerate(EDGES_S):
            if life.start_time + edge < over:
                told.append((life.start_time + edge, 1, life.start_time, i, b, False))
        if life.duration_s is not None:
            final = sum(life.duration_s > edge for edge in EDGES_S)
            told.append((over, 0, 0.0, i, final, True))
    told = sorted(event for event in told if event[0] < now)
    keys: list[Callable[[Job], Any]] = [
        lambda job: 0,
        lambda job: (job.vc, job.gpus),
        KEYS["user"],
        template,
    ]
    hazard, levels = _PRIOR, []
    for key, memory in zip(keys, MEMORY, strict=True):
        if key(me) == me.job_id:
            levels.append(np.array(hazard))
            continue
        memory = OF_VC if key is template and not me.user else memory
        mine = [event for event in told if key(world[event[3]].job) == key(me)]
        shrunk, known = [], []
        for b, wider in enumerate(hazard):
            outcomes = np.array([ended for *_, stretch, ended in mine if stretch == b], float)
            weights = (1 - 1 / memory) ** np.arange(len(outcomes))[::-1]
            known.append(weights.sum())
            shrunk.append((outcomes @ weights + SHRINKAGE * wider) / (weights.sum() + SHRINKAGE))
        hazard = shrunk
        levels.append(np.array(hazard))
    return told_of(levels, np.array(known), me.time_limit_s or math.inf)


def told_of(levels: list[Any], known: Any, limit: float) -> dict[str, float]:
    """The features, from the hazards by level and how many jobs of the narrowest are known."""
    means = []
    for level, cap in (*((level, math.inf) for level in levels), (levels[-1], limit)):
        alive = np.append(np.cumprod(1 - level[:-1]), 0.0)
        mass = -np.diff(alive, prepend=1.0)
        logs = np.minimum(_MIDDLE_LOG, math.log1p(cap))
        means.append(mass @ logs)
    row = dict(zip((spec.name for spec in SUM), np.diff(means, prepend=0.0), strict=True))
    row["like_spread"] = math.sqrt(max(0.0, mass @ logs**2 - (mass @ logs) ** 2))
    variance = 0.0
    for b in range(len(EDGES_S)):
        later = mass[b + 1 :].sum()
        after = mass[b + 1 :] @ logs[b + 1 :] / later if later > 0 else logs[-1]
        reach = 1.0 - mass[:b].sum()
        share = levels[-1][b]
        variance += (reach * (logs[b] - after)) ** 2 * share * (1 - share) / (known[b] + 3)
    row["like_error"] = math.sqrt(variance)
    for text, seconds in THRESHOLDS_S.items():
        chance = alive[EDGES_S.index(seconds)] if seconds < limit else 0.0
        chance = min(max(chance, 0.001), 0.999)
        row[f"like_over_{text}"] = math.log(chance / (1 - chance))
    return row


@given(a_world())
@settings(max_examples=40)
def test_rows_equal_a_plain_recomputation(world: list[Lifetime]) -> None:
    state = FeatureState(FAMILIES)
    for taken in replay(world, state):
        expected = plain_row(world, taken.position)
        for spec, value in zip(state.features, taken.values, strict=True):
            wanted = expected[spec.name]
            if wanted is None or isinstance(wanted, str):
                missing = value is None or value != value
                assert (missing and wanted is None) or value == wanted, spec.name
            else:
                assert value == pytest.approx(wanted, rel=1e-9, abs=1e-6, nan_ok=True), spec.name


# -- causality --------------------------------------------------------------------------------


def fresh(_world: Sequence[Lifetime]) -> FeatureState:
    return FeatureState(FAMILIES)


@given(a_world(), st.lists(st.integers(0, 14_000), min_size=1, max_size=5))
@settings(max_examples=40)
def test_no_feature_changes_when_the_future_is_deleted(
    world: list[Lifetime], offsets: list[int]
) -> None:
    cuts = [EPOCH + offset for offset in offsets]
    compared = assert_causal(fresh, world, cuts, BOTH)
    due = sum(
        (life.job.submit_time <= cut)
        + (life.profiled_time is not None and life.profiled_time <= cut)
        for cut in cuts
        for life in world
    )
    assert compared == due


class Leaky(FeatureState):
    """Plants one more feature, computed from a record that holds more than the past."""

    def __init__(self, leak: Callable[[Job, float], Value]):
        super().__init__()
        self.features = (*self.features, FeatureSpec("planted", "continuous", "size"))
        self.leak = leak

    def row(self, job: Job, now: float) -> list[Value]:
        return [*super().row(job, now), self.leak(job, now)]


def own_duration(world: Sequence[Lifetime]) -> FeatureState:
    lasted = {life.job.job_id: life.duration_s or 0.0 for life in world}
    return Leaky(lambda job, now: float(lasted[job.job_id] > 200))


def user_target_encoding(world: Sequence[Lifetime]) -> FeatureState:
    def mean_of_user(job: Job, now: float) -> float:
        lasted = [x.duration_s or 0.0 for x in world if x.job.user == job.user and x.ended]
        return float(np.mean(lasted)) if lasted else 0.0

    return Leaky(mean_of_user)


def jobs_still_to_come(world: Sequence[Lifetime]) -> FeatureState:
    return Leaky(lambda job, now: float(sum(life.job.submit_time > now for life in world)))


def a_day_of_jobs() -> list[Lifetime]:
    rng = np.random.default_rng(0)
    lives = []
    for number in range(60):
        submit = EPOCH + 600.0 * number
        job = Job(f"j{number}", submit, 1, user="ann" if number % 2 else "bob", vc="v1")
        lasted = float(rng.lognormal(7, 2))
        lives.append(Lifetime(job, submit, submit + lasted, State.COMPLETED, lasted))
    return lives


@pytest.mark.parametrize("leak", [own_duration, user_target_encoding, jobs_still_to_come])
def test_a_planted_leak_is_caught(leak: Callable[[Sequence[Lifetime]], FeatureState]) -> None:
    world = a_day_of_jobs()
    cuts = [EPOCH + 600.0 * 20, EPOCH + 600.0 * 40]
    assert assert_causal(fresh, world, cuts) == 21 + 41
    with pytest.raises(CausalityError, match="planted"):
        assert_causal(leak, world, cuts)


@given(a_world())
@settings(max_examples=40)
def test_a_row_is_the_same_just_before_and_just_after_its_submission(
    world: list[Lifetime],
) -> None:
    class Checked(FeatureState):
        def submit(self, job: Job, now: float) -> None:
            before = self.row(job, now)
            super().submit(job, now)
            assert list(map(repr, before)) == list(map(repr, self.row(job, now)))

    for _ in replay(world, Checked(FAMILIES), BOTH):
        pass


@given(a_world(), st.lists(st.integers(0, 2_000_000), min_size=1, max_size=8))
@settings(max_examples=40)
def test_questions_at_any_later_time_change_no_row(world: list[Lifetime], later: list[int]) -> None:
    class Asked(FeatureState):
        """Asked of strangers and of its own jobs, as of later times, after every event."""

        def submit(self, job: Job, now: float) -> None:
            super().submit(job, now)
            self.ask(now)

        def start(self, job_id: str, now: float) -> None:
            super().start(job_id, now)
            self.ask(now)

        def end(self, job_id: str, now: float, state: State, duration_s: float | None) -> None:
            super().end(job_id, now, state, duration_s)
            self.ask(now)

        def ask(self, now: float) -> None:
            for number, seconds in enumerate(later):
                job = world[number % len(world)].job
                for asked in (job, replace(job, job_id="?", submit_time=now)):
                    self.row(asked, now + seconds)
                    self.outlook(asked, now + seconds)

    quiet = [repr(taken) for taken in replay(world, FeatureState(FAMILIES), BOTH)]
    assert [repr(taken) for taken in replay(world, Asked(FAMILIES), BOTH)] == quiet


@given(a_world(), st.integers(0, 2_000_000))
@settings(max_examples=40)
def test_a_question_is_answered_as_if_time_had_come(world: list[Lifetime], later: int) -> None:
    """Looking ahead says what an event at that time would have brought about first."""
    state = FeatureState(FAMILIES)
    for _ in replay(world, state):
        pass
    times = [
        (life.job.submit_time, life.start_time, life.profiled_time, life.end_time) for life in world
    ]
    now = max(time for four in times for time in four if time is not None) + later
    for life in world:
        job = replace(life.job, job_id="?", submit_time=now)
        ahead = repr(state.row(job, now))
        come = copy.deepcopy(state)
        come._lives.advance(now)
        assert ahead == repr(come.row(job, now))


@pytest.mark.shared_data
def test_venus_is_causal(venus: pa.Table) -> None:
    world, _ = lifetimes(venus.slice(0, 4000))
    submitted = [life.job.submit_time for life in world]
    cuts = [submitted[2500], submitted[3500] + 0.5]  # in a burst, and between two submissions
    compared = assert_causal(fresh, world, cuts)
    assert compared == sum(time <= cut for cut in cuts for time in submitted)
