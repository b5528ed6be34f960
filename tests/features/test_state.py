from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from dataclasses import replace
from zoneinfo import ZoneInfo

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from features.job import Job, Profile
from features.schema import State
from features.spec import Value
from features.state import (
    BURST_CAP,
    DEFAULT_FAMILIES,
    FAMILIES,
    FEATURES,
    FeatureError,
    FeatureState,
    features_of,
    schema_digest,
)
from features.templates import PER_USER

T0 = 1_600_000_000.0


def a_job(number: int, at: float = T0, **asked: object) -> Job:
    return replace(Job(f"j{number}", at, 1, user="ann", vc="v1"), **asked)  # type: ignore[arg-type]


def named(state: FeatureState, job: Job, now: float) -> dict[str, Value]:
    names = [spec.name for spec in state.features]
    return dict(zip(names, state.row(job, now), strict=True))


def test_names_are_unique_and_every_family_is_there() -> None:
    everything = features_of(FAMILIES)
    assert len({spec.name for spec in everything}) == len(everything)
    assert {spec.family for spec in everything} == set(FAMILIES)
    assert all(spec.text for spec in everything)
    assert tuple(s for s in everything if s.family in DEFAULT_FAMILIES) == FEATURES


def test_families_and_names_choose_columns_and_change_no_value() -> None:
    full, some = FeatureState(FAMILIES), FeatureState(["queue", "user"])
    few = FeatureState(FAMILIES, names=["vc_queued", "user_last_s", "gpus"])
    for state in (full, some, few):
        state.submit(a_job(0), T0)
        state.start("j0", T0 + 5)
        state.submit(a_job(1), T0 + 10)
        state.end("j0", T0 + 50, State.FAILED, 45.0)
    ask = a_job(2, T0 + 60)
    everything = named(full, ask, T0 + 60)
    for state in (some, few):
        mine = named(state, ask, T0 + 60)
        assert list(mine) == [name for name in everything if name in mine]
        assert {name: repr(v) for name, v in mine.items()} == {
            name: repr(everything[name]) for name in mine
        }
    assert named(few, ask, T0 + 60) == {"gpus": 1.0, "user_last_s": 45.0, "vc_queued": 1.0}


def test_an_unknown_family_or_name_is_refused_by_name() -> None:
    with pytest.raises(FeatureError, match=r"'users'.*user_gpus"):
        FeatureState(["users"])
    with pytest.raises(FeatureError, match=r"'vc_last_s'.*size"):
        FeatureState(["size"], names=["vc_last_s"])


def test_the_digest_knows_names_and_order() -> None:
    assert schema_digest(FEATURES) == schema_digest(features_of())
    assert schema_digest(FEATURES[::-1]) != schema_digest(FEATURES)
    assert schema_digest(FEATURES[1:]) != schema_digest(FEATURES)
    assert schema_digest((replace(FEATURES[0], unit="x"), *FEATURES[1:])) != schema_digest()


def test_the_calendar_is_that_of_the_place() -> None:
    day = ["calendar"]
    midnight_utc = 1_599_955_200.0  # Sunday 13 September 2020
    utc, there = FeatureState(day), FeatureState(day, timezone=ZoneInfo("Asia/Shanghai"))
    job = a_job(0, midnight_utc - 1800)
    assert utc.row(job, midnight_utc) == [23.5, "Sat"]
    assert there.row(job, midnight_utc) == [7.5, "Sun"]


WRONG: list[tuple[str, Callable[[FeatureState], object]]] = [
    ("time", lambda state: state.submit(a_job(9), T0 - 1)),
    ("time nan", lambda state: state.submit(a_job(9), math.nan)),
    ("time", lambda state: state.row(a_job(9), T0 - 1)),
    ("job j0: already submitted", lambda state: state.submit(a_job(0), T0 + 1)),
    ("job j0: already running", lambda state: state.start("j0", T0 + 1)),
    ("job j1: not running", lambda state: state.requeue("j1", T0 + 1)),
    ("job j9: not submitted", lambda state: state.start("j9", T0 + 1)),
    ("job j9: not submitted", lambda state: state.end("j9", T0 + 1, State.FAILED, 1.0)),
    ("job j9", lambda state: state.profiled("j9", Profile(1, 1, 1), T0 + 1)),
    ("duration_s is -1", lambda state: state.end("j0", T0 + 1, State.FAILED, -1.0)),
    ("duration_s is nan", lambda state: state.end("j0", T0 + 1, State.FAILED, math.nan)),
    ("submit_time is nan", lambda state: state.submit(a_job(9, math.nan), T0 + 1)),
    ("submit_time is 1e\\+18", lambda state: state.row(a_job(9, 1e18), T0 + 1)),
    ("gpus -1", lambda state: state.submit(a_job(9, gpus=-1), T0 + 1)),
]


@pytest.mark.parametrize(("message", "event"), WRONG)
def test_a_wrong_event_is_refused_and_changes_nothing(
    message: str, event: Callable[[FeatureState], object]
) -> None:
    state = FeatureState()
    state.submit(a_job(0), T0)
    state.start("j0", T0)
    state.submit(a_job(1), T0)
    before = pickle.dumps(state)
    with pytest.raises(FeatureError, match=message):
        event(state)
    assert pickle.dumps(state) == before


def test_memory_is_bounded_by_keys_not_by_jobs() -> None:
    """The size of the whole state, pickled, before and after many more jobs of the same keys."""
    state = FeatureState()

    def feed(jobs: range) -> int:
        for number in jobs:
            now = T0 + 2.0 * number
            # a new name every time: templates must not grow without bound either
            job = a_job(number, now, user=f"u{number % 3}", name=f"{_word(number)}-job")
            state.submit(job, now)
            state.start(job.job_id, now)
            state.end(job.job_id, now + 1, State.COMPLETED, float(number % 977))
        return len(pickle.dumps(state))

    warm = feed(range(3000))
    assert warm < feed(range(3000, 6000)) * 1.02
    assert feed(range(6000, 9000)) < warm * 1.02


def test_a_burst_is_counted_up_to_its_cap() -> None:
    state = FeatureState(["burst"])
    for number in range(BURST_CAP + 50):
        state.submit(a_job(number), T0)
    assert state.row(a_job(-1), T0) == [float(BURST_CAP)]
    assert state.row(a_job(-1), T0 + 3599) == [float(BURST_CAP)]
    assert state.row(a_job(-1), T0 + 3600) == [0.0]


class Counters(RuleBasedStateMachine):
    """Any legal order of events leaves the counters a plain tally would show."""

    def __init__(self) -> None:
        super().__init__()
        self.state = FeatureState(["running", "queue"])
        self.now, self.born = T0, 0
        self.waiting: dict[str, Job] = {}
        self.started: dict[str, tuple[Job, float]] = {}

    @rule(wait=st.integers(0, 50), gpus=st.sampled_from([1, 8]), user=st.sampled_from("ab"))
    def submit(self, wait: int, gpus: int, user: str) -> None:
        self.now, self.born = self.now + wait, self.born + 1
        job = a_job(self.born, self.now, gpus=gpus, user=user)
        self.state.submit(job, self.now)
        self.waiting[job.job_id] = job

    @precondition(lambda self: self.waiting)
    @rule(wait=st.integers(0, 50), pick=st.integers(0, 99))
    def start(self, wait: int, pick: int) -> None:
        self.now += wait
        job = self.waiting.pop(list(self.waiting)[pick % len(self.waiting)])
        self.state.start(job.job_id, self.now)
        self.started[job.job_id] = job, self.now

    @precondition(lambda self: self.started)
    @rule(pick=st.integers(0, 99), ends=st.booleans())
    def stop(self, pick: int, ends: bool) -> None:
        job, _ = self.started.pop(list(self.started)[pick % len(self.started)])
        if ends:
            self.state.end(job.job_id, self.now, State.COMPLETED, 5.0)
        else:
            self.state.requeue(job.job_id, self.now)
            self.waiting[job.job_id] = job

    @precondition(lambda self: self.waiting)
    @rule(pick=st.integers(0, 99))
    def withdraw(self, pick: int) -> None:
        job = self.waiting.pop(list(self.waiting)[pick % len(self.waiting)])
        self.state.end(job.job_id, self.now, State.CANCELLED, None)

    @precondition(lambda self: self.waiting)
    @rule(wait=st.integers(0, 50), pick=st.integers(0, 99), gpus=st.sampled_from([1, 2, 8]))
    def change(self, wait: int, pick: int, gpus: int) -> None:
        self.now += wait
        job_id = list(self.waiting)[pick % len(self.waiting)]
        job = self.waiting[job_id] = replace(self.waiting[job_id], gpus=gpus)
        self.state.change(job, self.now)

    @invariant()
    def counters_are_a_tally(self) -> None:
        live = [*self.waiting.values(), *(job for job, _ in self.started.values())]
        for asked in [*live[:2], a_job(0, self.now, user="a")]:
            row = named(self.state, asked, self.now)
            waiting = [job for job in self.waiting.values() if job != asked]
            running = [pair for pair in self.started.values() if pair[0] != asked]
            mine = [start for job, start in running if job.user == asked.user]
            assert row["vc_queued"] == len(waiting)
            assert row["vc_queued_gpus"] == sum(job.gpus for job in waiting)
            assert row["vc_running"] == len(running)
            assert row["vc_running_gpus"] == sum(job.gpus for job, _ in running)
            assert row["user_queued"] == sum(job.user == asked.user for job in waiting)
            assert row["user_running"] == len(mine)
            longest = row["user_longest_running_s"]
            assert longest == self.now - min(mine) if mine else math.isnan(longest)


def test_a_changed_job_is_described_as_if_it_had_been_submitted_so() -> None:
    state, other = FeatureState(FAMILIES), FeatureState(FAMILIES)
    for one in (state, other):
        for number, gpus in ((1, 1), (2, 4)):
            at = T0 + 100.0 * (number - 1)
            old = a_job(number, at, gpus=gpus, name=f"old{gpus}")
            one.submit(old, at)
            one.start(old.job_id, at)
            one.end(old.job_id, at + 50.0, State.COMPLETED, 10.0 * number)
    asked = a_job(3, T0 + 300.0, gpus=1)
    changed = replace(asked, gpus=4, vc="other", time_limit_s=50.0)
    state.submit(asked, T0 + 300.0)
    before = named(state, asked, T0 + 300.0)
    foreseen = named(state, changed, T0 + 300.0)  # a question, which changes nothing
    assert named(state, asked, T0 + 300.0) == pytest.approx(before, nan_ok=True)
    state.change(changed, T0 + 300.0)
    assert foreseen == pytest.approx(named(state, changed, T0 + 300.0), nan_ok=True)
    other.submit(changed, T0 + 300.0)
    assert named(state, changed, T0 + 400.0) == pytest.approx(
        named(other, changed, T0 + 400.0), nan_ok=True
    )
    state.start(asked.job_id, T0 + 400.0)
    with pytest.raises(FeatureError, match="not waiting"):
        state.change(asked, T0 + 400.0)
    for one in (state, other):
        if one is other:
            one.start(asked.job_id, T0 + 400.0)
        one.end(asked.job_id, T0 + 500.0, State.COMPLETED, 100.0)
    probe, told = a_job(9, T0 + 600.0, gpus=4), []
    for one in (state, other):  # but it was not submitted anew
        row = named(one, probe, T0 + 600.0)
        told.append({k: v for k, v in row.items() if not k.endswith("since_submit_s")})
    assert told[0] == pytest.approx(told[1], nan_ok=True)


def test_to_look_at_waiting_jobs_anew_forgets_no_template() -> None:
    """More of them wait than are kept for a user."""
    state = FeatureState(FAMILIES)
    for gpus in range(1, 21):
        state.submit(a_job(gpus, T0 + gpus, gpus=gpus), T0 + gpus)
        state.start(f"j{gpus}", T0 + gpus)
        state.end(f"j{gpus}", T0 + gpus, State.COMPLETED, 60.0)
    jobs = [a_job(100 + gpus, T0 + 70.0, gpus=gpus) for gpus in range(1, PER_USER + 7)]
    for job in jobs:
        state.submit(job, T0 + 70.0)

    def ended() -> list[Value]:
        return [named(state, job, T0 + 80.0)["template_ended"] for job in jobs]

    before = ended()
    assert before == [1.0] * 20 + [0.0] * (PER_USER - 14)
    for job in jobs:
        state.change(job, T0 + 80.0)
    assert ended() == before


TestCounters = Counters.TestCase
TestCounters.settings = settings(max_examples=30, stateful_step_count=30)


def _word(number: int) -> str:
    return "".join(chr(ord("a") + int(digit)) for digit in str(number * 7919))
