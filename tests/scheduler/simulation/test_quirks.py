"""Departures from correct behaviour are off unless they are asked for, one by one."""

from __future__ import annotations

import dataclasses

import pytest

from reproductions.baselines.lucid import Lucid
from reproductions.baselines.qssf import Qssf
from reproductions.baselines.srtf import Srtf
from reproductions.published.track import PUBLISHED
from scheduler.core.settings import UnknownPolicy
from scheduler.policies import POLICIES, build
from scheduler.policies.fifo import Fifo
from scheduler.simulation.quirks import NONE, Quirks
from scheduler.testing.builders import a_job, cluster_of, play


def test_they_are_all_off_by_default_and_all_on_for_the_published_track() -> None:
    assert Quirks() == NONE
    for field in dataclasses.fields(Quirks):
        assert not getattr(NONE, field.name), field.name
        assert getattr(PUBLISHED, field.name), field.name


def test_policies_are_built_without_them() -> None:
    srtf, qssf, lucid = build("srtf"), build("qssf"), build("lucid")
    assert isinstance(srtf, Srtf)
    assert isinstance(qssf, Qssf)
    assert isinstance(lucid, Lucid)
    assert not srtf.ties_preempt
    assert not qssf.gpu_count_first
    assert not lucid.first_partner


def test_an_unknown_policy_is_refused_in_one_line() -> None:
    with pytest.raises(UnknownPolicy) as error:
        build("fcfs")
    assert (
        str(error.value) == f"no policy 'fcfs'; there are: {', '.join(POLICIES)}, or module:Class"
    )


@pytest.mark.parametrize(
    ("for_", "quirks", "end"),
    [
        (10.5, Quirks(), 10.5),
        (10.5, Quirks(tick_s=1.0), 11.0),
        (10.5, Quirks(tick_s=4.0), 12.0),
        (0.3 * 10, Quirks(tick_s=1.0), 3.0),  # it is on a tick
        (10.5, Quirks(tick_s=1.0, end_lag_s=1.0), 11.0),
        (10.5, Quirks(tick_s=1.0, end_lag_s=1.0, counting_policies=frozenset({"fifo"})), 12.0),
    ],
)
def test_ends_fall_on_ticks_and_late_for_policies_that_count(
    for_: float, quirks: Quirks, end: float
) -> None:
    played = play(Fifo(), cluster_of(), a_job("x", for_=for_), quirks=quirks)
    assert played.result("x").end_time == end
