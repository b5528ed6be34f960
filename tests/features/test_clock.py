"""A time of day that never goes back, whatever the host's is set to."""

from __future__ import annotations

import pytest

from features.clock import Clock


class Host:
    """A host whose clocks are moved by hand."""

    def __init__(self) -> None:
        self.wall, self.since_boot = 1e9, 50.0
        self.clock = Clock(lambda: self.wall, lambda: self.since_boot)

    def passes(self, seconds: float) -> None:
        self.wall += seconds
        self.since_boot += seconds


def test_it_is_the_hosts_as_long_as_that_is_not_set_back() -> None:
    host = Host()
    assert host.clock.now() == host.wall
    host.passes(10.0)
    assert host.clock.now() == host.wall
    host.wall += 3600.0
    assert host.clock.now() == host.wall
    assert host.clock.ahead_s() == 0.0


def test_set_back_by_an_hour_it_goes_on_and_what_lasts_four_seconds_lasts_about_four() -> None:
    host = Host()
    before = host.clock.now()
    host.wall -= 3600.0
    assert host.clock.now() == before
    assert host.clock.ahead_s() == 3600.0
    host.passes(4.0)
    assert host.clock.now() - before == pytest.approx(3.8)
    for _ in range(20):
        host.passes(3600.0)
        host.clock.now()
    assert host.clock.ahead_s() == pytest.approx(0.0, abs=1e-3)
    assert host.clock.now() == pytest.approx(host.wall)


def test_it_goes_on_from_a_time_it_was_somewhere_else() -> None:
    host = Host()
    host.clock.not_before(host.wall + 5.0)
    assert host.clock.now() == host.wall + 5.0
    host.clock.not_before(host.wall - 5.0)
    assert host.clock.now() == host.wall + 5.0
