"""What running jobs already tell, and how the estimate comes apart by level."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.job import Job
from features.schema import State
from features.spec import Value
from features.state import FeatureError, FeatureState
from features.survival import (
    _MIDDLE_LOG,
    BINS,
    EDGES_S,
    LEVELS,
    SHRINKAGE,
    SPECS,
    SUM,
    Hazard,
    Lives,
    hazards,
    values,
)

NOW = 1_600_000_000.0


def named(state: FeatureState, job: Job, now: float) -> dict[str, Value]:
    names = (spec.name for spec in state.features)
    row = dict(zip(names, state.row(job, now), strict=True))
    return row | {"sum": sum(row[spec.name] for spec in SUM)}  # type: ignore[misc]


def job(number: int, at: float, user: str = "ann", **asked: object) -> Job:
    return Job(f"j{number}", at, 1, user=user, vc="v", **asked)  # type: ignore[arg-type]


def test_a_job_still_running_is_news_for_the_next() -> None:
    state = FeatureState({"survival", "odds"})
    for number in range(3):
        state.submit(job(number, NOW), NOW)
        state.start(f"j{number}", NOW)
    soon, later = (named(state, job(9, at), at) for at in (NOW + 60, NOW + 5 * 3600))
    assert later["like_over_1h"] > soon["like_over_1h"] + 1
    assert later["sum"] > soon["sum"] + 1
    other = named(state, job(9, NOW + 5 * 3600, user="bob"), NOW + 5 * 3600)
    assert soon["like_over_1h"] < other["like_over_1h"] < later["like_over_1h"]


def test_a_job_that_stops_and_starts_again_is_counted_once() -> None:
    rows = []
    for stops in (False, True):
        state = FeatureState({"survival", "odds"})
        state.submit(job(0, NOW), NOW)
        state.start("j0", NOW)
        if stops:
            state.requeue("j0", NOW + 1000)
            state.start("j0", NOW + 1500)
            state.end("j0", NOW + 5500, State.COMPLETED, 4000.0)
        else:
            state.end("j0", NOW + 4000, State.COMPLETED, 4000.0)
        rows.append(state.row(job(1, NOW + 9000), NOW + 9000))
    assert rows[0] == rows[1]


def test_no_job_outlasts_its_limit() -> None:
    state = FeatureState({"survival", "odds"})
    short, free = (named(state, job(0, NOW, time_limit_s=t), NOW) for t in (300.0, None))
    assert short["sum"] <= math.log1p(300.0)
    assert short["like_limit"] < free["like_limit"] == 0
    assert short["like_over_1h"] == short["like_over_6h"] < free["like_over_6h"]


LIVES = st.lists(
    st.tuples(st.integers(0, len(LEVELS) - 1), st.floats(0, 1e6), st.booleans()), max_size=30
)


@given(LIVES, st.one_of(st.none(), st.floats(1, 1e6)))
def test_the_levels_add_up(lives: list[tuple[int, float, bool]], limit: float | None) -> None:
    groups = [Hazard(5.0) for _ in LEVELS]
    book = Lives()
    for number, (level, lasted, ended) in enumerate(lives):
        book.submit(str(number), (groups[0], groups[level]) if level else (groups[0],))
        book.start(str(number), float(number))
        if ended:
            book.end(str(number), lasted)
    book.advance(1e5)
    levels = hazards([*groups[:-1], None])
    assert all(0 < share < 1 for level in levels for share in level)
    assert len(levels[0]) == BINS == len(EDGES_S) + 1
    row = values([*groups[:-1], None], limit)
    alive = np.append(np.cumprod(1.0 - np.array(levels[-1][:-1])), 0.0)
    mass = -np.diff(alive, prepend=1.0)
    logs = np.minimum(_MIDDLE_LOG, math.log1p(limit) if limit else math.inf)
    assert sum(row[: len(SUM)]) == pytest.approx(mass @ logs)
    assert row[len(SUM) - 1] <= 1e-12  # what a limit adds
    assert row[-2] >= row[-1]  # odds of over 1 h, over 6 h


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=20), st.none() | st.floats(1, 1e6))
def test_the_error_is_that_of_the_mean(lasted: list[float], limit: float | None) -> None:
    """To first order: the mean, moved by the deviation of each stretch's share in turn."""
    group, book = Hazard(30.0), Lives()
    for number, seconds in enumerate(lasted):
        book.submit(str(number), (group,))
        book.start(str(number), 0.0)
        book.end(str(number), seconds)
    shares = np.array(hazards([None, None, None, group])[-1])
    logs = np.minimum(_MIDDLE_LOG, math.log1p(limit) if limit else math.inf)

    def mean(of: np.ndarray) -> float:
        alive = np.append(np.cumprod(1.0 - of[:-1]), 0.0)
        return float(-np.diff(alive, prepend=1.0) @ logs)

    variance = 0.0
    for b, known in enumerate(group.reached[:-1]):
        deviation = math.sqrt(shares[b] * (1 - shares[b]) / (known + SHRINKAGE + 1))
        moved = shares.copy()
        moved[b] += 1e-6
        variance += ((mean(moved) - mean(shares)) / 1e-6 * deviation) ** 2
    told = dict(zip((s.name for s in SPECS), values([None] * 3 + [group], limit), strict=False))
    assert told["like_error"] == pytest.approx(math.sqrt(variance), rel=1e-3, abs=1e-4)


def test_the_more_jobs_of_a_kind_are_known_the_smaller_the_error() -> None:
    errors = []
    for jobs in (0, 1, 3, 20):
        state = FeatureState({"survival"})
        for number in range(jobs):
            state.submit(job(number, NOW), NOW)
            state.start(f"j{number}", NOW)
        for number in range(jobs):
            state.end(f"j{number}", NOW + 500, State.COMPLETED, 500.0)
        errors.append(named(state, job(99, NOW + 900), NOW + 900)["like_error"])
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < errors[0] / 3


def test_the_outlook_is_what_the_features_say_and_needs_its_family() -> None:
    state = FeatureState({"survival", "odds"})
    state.submit(job(0, NOW), NOW)
    state.start("j0", NOW)
    state.end("j0", NOW + 50, State.COMPLETED, 50.0)
    terms, error = state.outlook(job(1, NOW + 90), NOW + 90)
    row = named(state, job(1, NOW + 90), NOW + 90)
    assert (sum(terms), error) == (row["sum"], row["like_error"])
    with pytest.raises(FeatureError, match="survival"):
        FeatureState({"size"}).outlook(job(1, NOW), NOW)


def lasting(users: str, cpus: float | None = None) -> tuple[FeatureState, Job]:
    """Jobs of v last an hour, those of w a minute, in turns; and the next one of v."""
    state = FeatureState({"survival", "user", "burst"})
    for number in range(40):
        now, lasts_s = NOW + 7200 * number, (3600.0, 60.0)[number % 2]
        asked = Job(f"j{number}", now, 1, user=users, vc="vw"[number % 2], cpus=cpus)
        state.submit(asked, now)
        state.start(asked.job_id, now)
        state.end(asked.job_id, now + lasts_s, State.COMPLETED, lasts_s)
    at = NOW + 7200 * 40
    return state, Job("next", at, 1, user=users, vc="v", cpus=cpus)


@pytest.mark.parametrize("cpus", [None, 4.0])
def test_jobs_without_a_user_are_not_all_of_one(cpus: float | None) -> None:
    state, asked = lasting("", cpus)
    row = named(state, asked, asked.submit_time)
    assert row["like_user"] == 0.0
    assert (row["like_template"] == 0.0) is (cpus is None)  # CPUs tell jobs of a VC apart
    assert row["sum"] == pytest.approx(math.log1p(3600), abs=0.6)
    assert row["user_ended"] == 0.0
    assert math.isnan(row["user_submitted_1h"])  # type: ignore[arg-type]
    pooled, same = lasting("everybody")
    assert row["sum"] > named(pooled, same, same.submit_time)["sum"] + 0.5  # type: ignore[operator]


def test_the_error_of_a_job_without_a_user_rests_on_the_narrowest_level_it_has() -> None:
    state, asked = lasting("")
    known = named(state, asked, asked.submit_time)["like_error"]
    stranger = Job("new", asked.submit_time, 1, user="stranger", vc="v")
    assert known < 0.5 * named(state, stranger, asked.submit_time)["like_error"]  # type: ignore[operator]
