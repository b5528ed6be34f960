"""Proof by deletion that a row knows nothing of the future.

A feature is causal when the row of a job stays the same, bit for bit, if everything after it is
struck from the record: jobs submitted later do not exist, jobs still running have no end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from features.replay import Lifetime, Moment, RowSource, replay
from features.spec import Value

# Builds what is to be tested from the record it is allowed to see: a target encoding fitted on
# the whole record, say, is a leak that shows when the record is shorter.
Factory = Callable[[Sequence[Lifetime]], RowSource]


class CausalityError(AssertionError):
    """A feature changed when the future was deleted; names job, feature, values and cut."""


def assert_causal(
    factory: Factory,
    lifetimes: Sequence[Lifetime],
    cuts: Iterable[float],
    moments: Collection[Moment] = (Moment.SUBMIT,),
) -> int:
    """Compares rows of the full record with rows of the record as it stood at each cut.

    Args:
        factory: builds a row source from a record.
        lifetimes: the full record.
        cuts: times (seconds since the epoch) at which to delete the future.
        moments: when rows are taken.

    Returns the number of rows compared; raises CausalityError at the first difference.
    """
    source = factory(lifetimes)
    names = [spec.name for spec in source.features]
    full = {
        (lifetimes[taken.position].job.job_id, taken.moment): taken
        for taken in replay(lifetimes, source, moments)
    }
    compared = 0
    for cut in cuts:
        world = [life.until(cut) for life in lifetimes if life.job.submit_time <= cut]
        rows = 0
        for taken in replay(world, factory(world), moments):
            job_id = world[taken.position].job.job_id
            _compare(names, full[job_id, taken.moment].values, taken.values, job_id, cut)
            rows += 1
        due = sum(taken.now <= cut for taken in full.values())
        if rows != due:
            raise CausalityError(f"cut {cut}: {rows} rows where the full record has {due}")
        compared += rows
    return compared


def _compare(
    names: list[str], full: list[Value], deleted: list[Value], job_id: str, cut: float
) -> None:
    for name, with_future, without in zip(names, full, deleted, strict=True):
        both_missing = with_future != with_future and without != without
        if with_future != without and not both_missing:
            raise CausalityError(
                f"job {job_id}: feature {name} is {with_future} with the future and "
                f"{without} without what comes after {cut}"
            )
