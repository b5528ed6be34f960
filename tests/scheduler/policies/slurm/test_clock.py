"""When the policy `slurm` wakes."""

from __future__ import annotations

from scheduler.policies.slurm.clock import Clock, Rhythm


def test_where_nothing_waits_nothing_is_due_again_and_again() -> None:
    """A job ends, nobody waits, so no pass is made: one wake at most, not one every millisecond."""
    clock = Clock(Rhythm(3.0, 60.0, 30.0, 300.0))
    assert clock.main_due("gpu", 0.0)
    clock.backfill_due("gpu", 0.0)
    clock.ended()
    clock.changed()
    now, wakes = 100.0, 0
    while (at := clock.next(now, backfills=True)) is not None:
        assert at > now
        now, wakes = at, wakes + 1
        assert wakes < 5
