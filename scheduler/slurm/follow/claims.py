"""Claims of a follower (the process that follows Slurm) that can turn out false: offers of changes,
room in a limit, and jobs that never start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import Connection

from features.codec import encode
from scheduler.backends.events import canonical
from scheduler.explain.claims import ROOM_S, VALID_S, Claim, Kind
from scheduler.explain.effect import Tried
from scheduler.service.log.store import claims
from scheduler.slurm.read.parse import SlurmJob
from scheduler.slurm.reason import SlurmReason

PASS_S = 60.0  # in which slurmctld has looked at every job again: what it starts then is at once
# what a change brings with it, or Slurm counts again
_FOLLOWS = frozenset({"priority", "reason", "tres", "memory_mib"})
# what its owner would change besides, and then takes another offer
_ASKED = ("gpus", "gpu_types", "time_limit_s", "partition", "qos", "account", "num_nodes")


class Claims:
    """The claims made since the last poll of Slurm, and the offers of changes that owners may still
    take up."""

    def __init__(self) -> None:
        self._made: list[Claim] = []
        self._offers: dict[str, dict[str, tuple[Mapping[str, Any], float]]] = {}  # by job, change

    def offered(
        self,
        job: SlurmJob,
        as_it_is: Tried | None,
        tried: Sequence[tuple[Tried, SlurmJob]],
        now: float,
    ) -> None:
        """Record the changes that were offered for a job, as claims. `tried` holds for each the
        forecast, and the job with the change."""
        for one, changed in tried:
            if change := differs(job, changed):
                kept = {name: encode(getattr(job, name)) for name in _ASKED}
                self._offers.setdefault(job.id, {})[canonical(change)] = {**kept, **change}, now
                self._made += of_tried(job.id, change, one, as_it_is=as_it_is, now=now)

    def room(self, reasons: Mapping[str, SlurmReason], now: float) -> None:
        """Record the claim that jobs will start soon: those that wait for a limit which now has
        room, with no job before them.
        """
        self._made += [
            Claim(Kind.ROOM, job_id, now, due=now + ROOM_S)
            for job_id, why in reasons.items()
            if why.lapsed and not why.ahead and not why.started
        ]

    def write(
        self,
        connection: Connection,
        jobs: Iterable[SlurmJob],
        never: Sequence[Claim],
        otherwise: Sequence[str],
        seq: int,
        now: float,
    ) -> None:
        """Store claims, find the offers that were taken up, and judge the claims that are due. Call
        it after the rows of the jobs are written.

        Args:
            never: claims that jobs never start, from forecasts.
            otherwise: ids of jobs whose requests changed since the last poll, so that claims about
                them are void.
        """
        claims.keep(connection, [*self._made, *never], seq)
        self._made = []
        self._forget_offers(now)
        for job in jobs if self._offers else ():
            for change, (wanted, _) in list(self._offers.get(job.id, {}).items()):
                if all(encode(getattr(job, name)) == to for name, to in wanted.items()):
                    claims.taken(connection, job.id, change, now)
                    del self._offers[job.id][change]
        claims.void(connection, otherwise)
        claims.apply(connection, claims.judged(connection, now))

    def _forget_offers(self, now: float) -> None:
        """Drop the offers (suggested changes of jobs) that are too old to be taken up, also those
        for jobs that have left."""
        valid = (
            (job_id, {change: one for change, one in of.items() if now - one[1] <= VALID_S})
            for job_id, of in self._offers.items()
        )
        self._offers = {job_id: of for job_id, of in valid if of}


def differs(job: SlurmJob, changed: SlurmJob) -> Mapping[str, Any]:
    """Return the fields in which `changed` differs from `job`, with its values as plain JSON.
    Fields that follow from others (`_FOLLOWS`) are left out."""
    names = (one.name for one in fields(job) if one.name not in _FOLLOWS)
    return {
        name: encode(to) for name in names if (to := getattr(changed, name)) != getattr(job, name)
    }


def of_tried(
    job_id: str, change: Mapping[str, Any], tried: Tried, as_it_is: Tried | None, now: float
) -> Iterator[Claim]:
    """Yield the claims that an offer (a suggested change of a job) contains: that the job starts at
    once, or sooner and by a p90."""
    if not tried.reason:  # it starts at once
        yield Claim(Kind.OFFER_AT_ONCE, job_id, now, change=change, due=now + PASS_S)
        return
    if as_it_is is not None and as_it_is.start_p50 is not None:
        yield Claim(Kind.OFFER_SOONER, job_id, now, change=change, due=as_it_is.start_p50)
    if tried.start_p90 is not None:
        yield Claim(Kind.OFFER_P90, job_id, now, change=change, due=tried.start_p90)
