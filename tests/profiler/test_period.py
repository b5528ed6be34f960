"""Step time from signals whose period is known, and doubt where there is none."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.period import CONFIDENT, StepTime, Stretch, estimate

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Job:
    """A training loop as a signal shows it.

    Attributes:
        step: mean step time, seconds; `jitter` is its relative spread from step to step.
        snr: amplitude of the step's shape over the noise.
        drift: slow wander, in amplitudes.
    """

    step: float
    shape: str = "dip"
    jitter: float = 0.02
    snr: float = 2.0
    drift: float = 1.0

    def record(self, seconds: float, hz: float, seed: int) -> tuple[Array, Array]:
        rng = np.random.default_rng(seed)
        t = np.cumsum(rng.uniform(0.7, 1.3, int(seconds * hz)) / hz)
        lengths = self.step * np.clip(
            1 + self.jitter * rng.normal(size=int(2 * seconds / self.step) + 9), 0.3, 3
        )
        ends = np.cumsum(lengths)
        index = np.searchsorted(ends, t)
        phase = 1 - (ends[index] - t) / lengths[index]
        wave = {
            "square": (phase < 0.6).astype(float),
            "saw": 1 - np.abs(2 * phase - 1),
            "dip": (phase > 0.2).astype(float),
            "harmonics": np.sin(2 * np.pi * phase) + 0.7 * np.sin(4 * np.pi * phase + 1),
        }[self.shape]
        wave = (wave - wave.mean()) / wave.std()
        wander = self.drift * np.sin(4 * t / seconds)
        return t, wave + wander + rng.normal(size=t.size) / self.snr


def stretches(t: Array, y: Array, parts: int = 3, name: str = "power") -> list[Stretch]:
    return [
        Stretch(name, a, b)
        for a, b in zip(np.array_split(t, parts), np.array_split(y, parts), strict=True)
    ]


@pytest.mark.parametrize("shape", ["square", "saw", "dip", "harmonics"])
@pytest.mark.parametrize(("hz", "step"), [(50, 0.12), (50, 0.31), (10, 0.7), (10, 1.9)])
def test_a_clear_period_is_found_within_two_percent(shape: str, hz: float, step: float) -> None:
    for seed in range(2):
        t, y = Job(step, shape).record(600 / hz + 40 * step, hz, seed)
        found = estimate(stretches(t, y))
        assert found.seconds == pytest.approx(step, rel=0.02)
        assert found.confidence >= CONFIDENT


def population(count: int) -> list[tuple[Job, StepTime, float, float]]:
    """Jobs of every kind, also hopeless ones: (job, estimate, samples per step, steps seen)."""
    rng = np.random.default_rng(7)
    found = []
    for number in range(count):
        hz, seconds = float(rng.choice([10, 50])), float(rng.choice([15, 30]))
        job = Job(
            float(np.exp(rng.uniform(np.log(0.4 / hz), np.log(seconds / 6)))),
            str(rng.choice(["square", "saw", "dip", "harmonics"])),
            float(rng.choice([0.0, 0.02, 0.08])),
            float(rng.choice([0.4, 1.0, 3.0])),
            float(rng.choice([0.0, 2.0])),
        )
        t, y = job.record(seconds, hz, number)
        found.append((job, estimate(stretches(t, y)), job.step * hz, seconds / job.step))
    return found


def right(job: Job, found: StepTime) -> bool:
    return found.seconds is not None and abs(found.seconds / job.step - 1) <= 0.10


def test_confidence_means_something() -> None:
    jobs = population(120)
    sure = [(job, found) for job, found, _, _ in jobs if found.confidence >= CONFIDENT]
    wrong = [(job, found) for job, found in sure if not right(job, found)]
    assert len(wrong) <= 0.03 * len(sure), wrong
    # and where the signal allows, most are found
    clear = [(j, f) for j, f, per_step, steps in jobs if per_step > 5 and j.snr >= 1 and steps > 30]
    assert sum(right(job, found) for job, found in clear) >= 0.9 * len(clear)
    assert sum(found.confidence >= CONFIDENT for _, found in clear) >= 0.6 * len(clear)
    # steps too fast to be seen are not claimed
    fast = [(job, found) for job, found, per_step, _ in jobs if per_step < 1.5]
    assert fast
    assert not [job for job, found in fast if found.confidence >= CONFIDENT]


@pytest.mark.parametrize("memory", [0.0, 0.5, 0.9, 0.99])
def test_noise_has_no_period(memory: float) -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        noise = rng.normal(size=1500)
        for i in range(1, noise.size):
            noise[i] += memory * noise[i - 1]
        t = np.arange(noise.size) * 0.02
        assert estimate(stretches(t, noise)).confidence < CONFIDENT


def test_one_stretch_alone_is_never_trusted() -> None:
    t, y = Job(0.3, "square", 0.0, 50.0, 0.0).record(10, 50, 0)
    found = estimate([Stretch("power", t, y)])
    assert found.seconds == pytest.approx(0.3, rel=0.02)
    assert found.confidence < CONFIDENT


def held(t: Array, y: Array, every_s: float) -> Array:
    """What a driver gives that has a new value only every so often."""
    index = np.searchsorted(t, np.floor(t / every_s) * every_s)
    return y[np.minimum(index, t.size - 1)]


def test_an_alias_of_an_even_source_is_not_trusted() -> None:
    # 70 ms steps seen through a value that changes every 100 ms look like 233 ms steps, always
    t, y = Job(0.07, "square", 0.0, 100.0, 0.0).record(30, 50, 1)
    found = estimate(stretches(t, held(t, y, 0.1)))
    assert found.confidence < CONFIDENT
    assert found.shortest_s >= 0.15  # nor is it said that 70 ms could have been seen


def test_two_sources_of_different_pace_can_be_trusted() -> None:
    job = Job(1.1, "square", 0.01, 10.0, 0.0)
    t, y = job.record(60, 20, 1)
    power = stretches(t, held(t, y, 0.1), name="power")
    util = stretches(t, held(t, y, 0.167), name="util")
    found = estimate([*power, *util])
    assert found.seconds == pytest.approx(1.1, rel=0.03)
    assert found.confidence >= CONFIDENT


@pytest.mark.parametrize(
    "signal",
    [np.zeros(400), np.full(400, np.nan), np.r_[np.zeros(399), 1.0]],
    ids=["0", "nan", "1"],
)
def test_a_signal_without_motion_says_nothing(signal: Array) -> None:
    found = estimate([Stretch("util", np.arange(400) * 0.05, signal)])
    assert found.seconds is None
    assert found.confidence == 0.0
    assert found.reason


@given(st.floats(0.05, 20), st.floats(0.01, 1e4), st.floats(-1e4, 1e4), st.integers(0, 1000))
@settings(max_examples=40)
def test_units_of_signal_and_time_do_not_matter(
    slower: float, scale: float, offset: float, seed: int
) -> None:
    t, y = Job(0.3, "square", 0.0, 5.0).record(20, 50, seed)
    one, other = estimate(stretches(t, y)), estimate(stretches(slower * t, scale * y + offset))
    assert one.seconds is not None
    assert other.seconds is not None
    assert other.seconds / slower == pytest.approx(one.seconds, rel=1e-3)
    assert other.confidence == pytest.approx(one.confidence, abs=1e-3)


@given(st.lists(st.floats(-1e3, 1e3), min_size=60, max_size=200))
@settings(max_examples=60)
def test_anything_gives_a_confidence_between_zero_and_one(values: list[float]) -> None:
    y = np.array(values)
    t = np.arange(y.size) * 0.1
    found = estimate(stretches(t, y, 1) + stretches(t, y, 1, "other"))
    assert 0.0 <= found.confidence <= 1.0
    if found.seconds is not None:
        assert 0.9 * found.shortest_s <= found.seconds <= 1.1 * found.longest_s
