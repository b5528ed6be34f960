"""The steady window on recordings whose warm-up is known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.steady import find_window

Array = npt.NDArray[np.float64]
Signals = dict[str, Array]


def coloured(n: int, sd: float, memory: float, rng: np.random.Generator) -> Array:
    """Noise of standard deviation `sd` whose neighbours correlate by `memory`."""
    noise = rng.normal(0, sd * np.sqrt(1 - memory**2), n)
    for i in range(1, n):
        noise[i] += memory * noise[i - 1]
    return noise


def jump(t: Array, w: float, rng: np.random.Generator) -> Signals:
    """Nothing, then all at once."""
    n, before = t.size, t < w
    return {
        "util": np.clip(np.where(before, 0, 80) + coloured(n, 5, 0.5, rng), 0, 100),
        "memory": np.where(before, 500.0, 9000.0) + rng.normal(0, 3, n),
        "power": np.where(before, 70, 300) + coloured(n, 10, 0.7, rng),
    }


def compilation(t: Array, w: float, rng: np.random.Generator) -> Signals:
    """Idle, then bursts of compilation and autotuning, then training."""
    idle, before = t < 0.3 * w, t < w
    bursts = 25 + 40 * (np.sin(1.3 * t) > 0.3)
    util = np.where(idle, 0, np.where(before, bursts, 85)) + coloured(t.size, 5, 0.5, rng)
    memory = np.where(idle, 300.0, np.where(before, 6000.0, 9000.0))
    return {"util": np.clip(util, 0, 100), "memory": memory}


def ramp(t: Array, w: float, rng: np.random.Generator) -> Signals:
    """A loader that fills up: everything rises in a line until the end of the warm-up."""
    done = np.clip(t / w, 0, 1)
    return {
        "util": 90 * done + coloured(t.size, 4, 0.5, rng),
        "power": 70 + 230 * done + coloured(t.size, 8, 0.5, rng),
        "memory": np.where(t < 2, 0.0, 9000.0),
    }


def swinging(t: Array, w: float, rng: np.random.Generator) -> Signals:
    """Steps of three seconds that are seen one by one."""
    swing = 50 + 45 * np.sign(np.sin(2 * np.pi * (t - w) / 3.1))
    return {"util": np.where(t < w, 0, swing) + coloured(t.size, 5, 0.2, rng)}


def epochs(t: Array, w: float, rng: np.random.Generator) -> Signals:
    """Training and evaluation taking turns: steady as a cycle."""
    training = (t - w) % 30 < 22
    return {
        "util": np.where(t < w, 0, np.where(training, 90, 40)) + coloured(t.size, 5, 0.5, rng),
        "memory": np.where(t < w, 300.0, 9000.0),
        "power": np.where(t < w, 70, np.where(training, 300, 180)) + coloured(t.size, 9, 0.5, rng),
    }


def host_only(t: Array, w: float, rng: np.random.Generator) -> Signals:
    """A CPU program that reads its data and then computes."""
    return {
        "host.cpu_pct": np.where(t < w, 35, 190) + coloured(t.size, 12, 0.3, rng),
        "host.rss_mib": np.minimum(t / w, 1) * 800 + 40 * ((t * 3) % 1),
    }


SHAPES: list[Callable[[Array, float, np.random.Generator], Signals]] = [
    jump, compilation, ramp, swinging, epochs, host_only,
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
@pytest.mark.parametrize(("seconds", "hz"), [(200, 10), (90, 10)])
def test_a_known_warm_up_is_found_within_five_percent(
    shape: Callable[[Array, float, np.random.Generator], Signals], seconds: float, hz: float
) -> None:
    for seed in range(3):
        rng = np.random.default_rng(seed)
        t = np.sort(np.arange(0, seconds, 1 / hz) + rng.normal(0, 0.05 / hz, int(seconds * hz)))
        warm_up = rng.uniform(0.06, 0.5) * seconds
        window = find_window(t, shape(t, warm_up, rng))
        allowed = max(0.05 * warm_up, 2 / hz)
        assert abs(window.start_s - warm_up) <= allowed, (seed, warm_up, window)
        assert window.steady, (seed, window)
        assert window.end_s == t[-1]


def test_a_run_that_is_steady_from_the_start_is_kept_whole() -> None:
    rng = np.random.default_rng(0)
    t = np.arange(0, 100, 0.1)
    window = find_window(t, {"util": 80 + coloured(t.size, 5, 0.5, rng)})
    assert window.steady
    assert window.start_s < 2.0


def test_teardown_is_cut_off_when_the_command_ended_by_itself() -> None:
    rng = np.random.default_rng(1)
    t = np.arange(0, 120, 0.1)
    signals = jump(t, 20.0, rng)
    signals["util"][t > 100] = 0
    signals["power"][t > 100] = 70
    ended, stopped = find_window(t, signals, ended=True), find_window(t, signals)
    assert ended.start_s == pytest.approx(20, abs=1)
    assert ended.end_s == pytest.approx(100, abs=1)
    assert stopped.end_s == t[-1]


def test_a_run_that_never_settles_says_so() -> None:
    t = np.arange(0, 60, 0.1)
    window = find_window(t, {"memory": 100 * t})
    assert not window.steady
    assert "memory went from" in window.reason


@pytest.mark.parametrize(
    ("t", "signals", "reason"),
    [
        ([], {}, "no samples"),
        ([0, 1, 2], {"util": [1, 2, 3]}, "too short"),
        (np.arange(100.0), {}, "no signal"),
        (np.arange(100.0), {"util": np.full(100, np.nan)}, "no signal"),
    ],
)
def test_too_little_is_said(t: Array, signals: Signals, reason: str) -> None:
    window = find_window(t, signals)
    assert not window.steady
    assert reason in window.reason


def test_gaps_in_one_signal_do_not_matter() -> None:
    rng = np.random.default_rng(2)
    t = np.arange(0, 100, 0.1)
    signals = jump(t, 30.0, rng)
    signals["util"][rng.random(t.size) < 0.3] = np.nan
    assert find_window(t, signals).start_s == pytest.approx(30, abs=1.5)


@given(st.integers(0, 2**32 - 1), st.floats(0.001, 1e6), st.floats(-1e6, 1e6))
@settings(max_examples=30)
def test_units_do_not_matter(seed: int, scale: float, offset: float) -> None:
    rng = np.random.default_rng(seed)
    t = np.arange(0, 40, 0.2)
    util = np.where(t < 10, 0, 50) + rng.normal(0, 3, t.size)
    one = find_window(t, {"x": util})
    other = find_window(t, {"x": scale * util + offset})
    assert other.start_s == pytest.approx(one.start_s, abs=0.6)


@given(
    st.lists(st.one_of(st.floats(allow_nan=True, allow_infinity=True), st.just(0.0)), max_size=80),
    st.booleans(),
)
@settings(max_examples=100)
def test_whatever_was_recorded_gives_a_window_inside_the_run(
    values: list[float], ended: bool
) -> None:
    t = np.arange(len(values)) * 0.1
    with np.errstate(all="ignore"):
        window = find_window(t, {"a": values, "b": np.ones(len(values))}, ended=ended)
    if values:
        assert t[0] <= window.start_s <= window.end_s <= t[-1]
    assert window.samples <= len(values)
