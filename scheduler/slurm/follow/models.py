"""The models with which a follower predicts durations, and the records of its predictions.

Slurm decides, so no decision carries a score; each job's score is an event of its own. From these
and the ends of jobs, a watch compares new models with the former ones, as in a service that
schedules by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import structlog

from models.bundle import BundleError
from scheduler.backends.events import Event, Kind
from scheduler.core.estimates import LiveEstimator
from scheduler.explain.whatif.memory import Memory
from scheduler.service.log.bundles import BundleStore, Signature
from scheduler.service.log.store.leases import Lease
from scheduler.service.log.store.store import Store
from scheduler.service.log.watch_models import not_left

MOST = 1000  # jobs that are scored at one look


class Models:
    """The models that a follower uses: the champion (the bundle chosen for use), or the bundle that
    the log names.

    Args:
        store: the database; None: nothing is written anywhere.
        champion: folder of the champion; None: there is none.
        watches: whether a watch may go back from the champion to the former models; the champion
            then stays unused.
    """

    def __init__(
        self,
        store: Store | None,
        champion: Path | None,
        bundles: BundleStore | None,
        *,
        watches: bool,
    ):
        self._store, self._champion, self._bundles = store, champion, bundles
        self._watches = watches
        self._log = structlog.get_logger("follower")
        self.begin()

    def begin(self) -> None:
        """Reset which models are in use, and which jobs were scored."""
        self._seen: Signature | None = None
        self._digest = ""
        self._scored: dict[str, float] = {}  # jobs that are not over -> when they were submitted

    def look(self, memory: Memory, now: float, lease: Lease | None) -> bool:
        """Have the memory of durations use a new champion, or the models that the log names. Return
        whether the models changed."""
        if self._bundles is None:
            return False
        before, found = self._digest, None
        if self._champion is not None:
            try:
                found = self._bundles.signature(self._champion)
            except BundleError as error:
                self._log.warning("bundle_refused", why=str(error))
        steps = [partial(self._go_back, memory)]
        if found is not None and found != self._seen:
            self._seen = found
            steps.insert(0, partial(self._take, memory, now, lease))
        for step in steps:  # where the champion is refused, that of the log is used
            try:
                step()
            except (BundleError, OSError) as error:
                self._log.warning("bundle_refused", why=str(error))
        return self._digest != before

    def _take(self, memory: Memory, now: float, lease: Lease | None) -> None:
        assert self._bundles is not None
        assert self._champion is not None
        bundle = self._bundles.take(self._champion)
        if self._store is not None and self._watches:
            not_left(self._store, bundle.digest)
        memory.use(bundle)
        self._digest = bundle.digest
        if self._store is not None and bundle.digest != self._in_log():
            body = self._bundles.body(self._champion, bundle.digest)
            self._store.append([Event(Kind.BUNDLE, now, body=body)], lease=lease)

    def _go_back(self, memory: Memory) -> None:
        """Have the memory of durations use the models that the log says are in use. They differ
        from the present ones if a watch (a comparison of new models with the former ones) has gone
        back."""
        assert self._bundles is not None
        digest = self._in_log()
        if digest and digest != self._digest:
            memory.use(self._bundles.find({"digest": digest}))
            self._digest = digest

    def _in_log(self) -> str:
        if self._store is None:
            return ""
        with self._store.reading() as connection:
            last = self._store.last_in(connection, Kind.BUNDLE)
        return "" if last is None else str(last.body["digest"])

    def scored(self, memory: Memory, now: float) -> Sequence[Event]:
        """Return an event for each job that has not ended and was not scored by this process yet,
        with the model and inputs of its prediction; at most `MOST`, the others at later polls.
        Return [] without a model."""
        inner = memory.inner
        if self._store is None or not isinstance(inner, LiveEstimator) or inner.bundle is None:
            return []
        live = memory.live()
        self._scored = {one: at for one, at in self._scored.items() if one in live}
        new = [one for one, past in live.items() if self._scored.get(one) != past.job.submit_time]
        events = []
        for job_id in new[:MOST]:
            job = live[job_id].job
            self._scored[job_id] = job.submit_time
            with suppress(LookupError):
                score = inner.estimate(job, now).score
                if score is not None:
                    body = {"bundle": score.bundle, "inputs": list(score.inputs)}
                    events.append(Event(Kind.SCORED, now, job_id=job_id, body=body))
        return events
