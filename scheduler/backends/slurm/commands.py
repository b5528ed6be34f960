"""The commands that Slurm is given: jobs submitted, placed, released and cancelled.

What is asked for is in the journal before: an answer that comes late, or never, leaves it to the
job itself to say what is left to do.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import structlog

from features.schema import State
from scheduler.backends.local.host import HostError, own_user
from scheduler.backends.slurm import script
from scheduler.backends.slurm.attempt import Did, Key, SlurmAttempt, Stage
from scheduler.backends.slurm.attempts import Attempts, Pace, Timing
from scheduler.backends.slurm.client import RestDown, Slurm, SlurmError
from scheduler.backends.slurm.job_states import RUNNING, WAITING
from scheduler.backends.slurm.parse import SlurmJob
from scheduler.backends.slurm.queue import Queue, is_slurm_id
from scheduler.backends.slurm.shape import Shape

BY_HAND = "released in Slurm by hand; it runs outside Pellucid"


class Commands:
    """Brings attempts into Slurm, and out of it.

    Args:
        queue: of jobs that users submit themselves; None: they are none of the service's.
    """

    def __init__(
        self,
        attempts: Attempts,
        shape: Shape,
        slurm: Slurm,
        pace: Pace,
        timing: Timing,
        queue: Queue | None,
    ) -> None:
        self._attempts, self._shape, self._slurm = attempts, shape, slurm
        self._pace, self._timing, self._queue = pace, timing, queue
        self._site = attempts.journal.site
        self.log = structlog.get_logger("slurm")

    def act(self) -> None:
        """Ask Slurm for what is to be done. Raises SlurmDown, SlurmError, ParseError."""
        live = self._attempts.live.values()
        if any(a.stage is Stage.SENT for a in live):
            self._find([a for a in live if a.stage is Stage.SENT])
        until = time.monotonic() + self._pace.submit_s
        with self._by_rest():
            for attempt in list(live):
                waits = attempt.stage is Stage.ASKED and not attempt.stop
                if waits and time.monotonic() < until:
                    self._submit(attempt)
        with self._by_rest():
            self._place([a for a in live if a.is_held and not a.stop])
        with self._by_rest():
            self._cancel_all([a for a in live if (a.stop or a.limit) and a.slurm_id and not a.over])
        with self._by_rest():
            if self._queue is not None:
                self._queue.show()

    @contextmanager
    def _by_rest(self) -> Iterator[None]:
        """What slurmrestd may have a part in: while it is down all else goes on, and this is tried
        again after its pause."""
        try:
            yield
        except RestDown as down:
            self._timing.act_at = time.monotonic() + down.again_s

    # --- into Slurm ---------------------------------------------------------------------------

    def _find(self, sent: Iterable[SlurmAttempt]) -> None:
        """Find the jobs of attempts whose `sbatch` may or may not have been heard."""
        there = {job.comment: job for job in self._slurm.jobs() if job.comment}
        for attempt in sent:
            assert attempt.launch is not None
            assert attempt.sent_at is not None
            job = there.get(script.mark(attempt.launch, self._site))
            if job is not None and job.submit >= attempt.sent_at - 2.0:
                attempt.found(job.id, job.submit, self._attempts.now())
            elif attempt.stop:
                self._attempts.not_started(attempt, "stopped", State.CANCELLED)
            else:
                attempt.forget_job(Did.UNHEARD, self._attempts.now())
            self._attempts.save(attempt)

    def stray(self, job: SlurmJob) -> None:
        """A held job that may be ours, by an `sbatch` that was carried out after its answer was
        lost: the attempt takes it where it has none. Where it has another, or is over, this one is
        cancelled: it never ran, and never would. Raises SlurmDown."""
        key = script.marked(job, self._site)
        known = key is not None and self._attempts.journal.knows(key)
        if key is None or not known or job.start is not None or job.placed:
            return
        attempt = self._attempts.live.get(key)
        launch = attempt.launch if attempt is not None else None
        if job.user != ((launch.user if launch is not None else "") or own_user()):
            return  # the comment of another can be copied
        if attempt is not None and attempt.stage in (Stage.ASKED, Stage.SENT) and not attempt.stop:
            attempt.found(job.id, job.submit, self._attempts.now())
            self._attempts.save(attempt)
        elif attempt is None or attempt.slurm_id != job.id:
            self.log.warning("slurm_duplicate", job=key[0], attempt=key[1], slurm_job=job.id)
            self._cancel_job(key, job.id)

    def _submit(self, attempt: SlurmAttempt) -> None:
        launch, attempts = attempt.launch, self._attempts
        assert launch is not None
        attempt.sent_at = attempts.now()
        attempt.move(Did.SUBMIT, attempt.sent_at)
        attempts.save(attempt)
        try:
            made = script.options(launch, self._shape, attempts.output(attempt.key), self._site)
            attempt.slurm_id = self._slurm.submit(made, script.script(launch))
            attempt.move(Did.ACCEPTED, attempts.now())
        except (SlurmError, HostError) as error:
            attempts.not_started(attempt, str(error))
        attempts.save(attempt)

    # --- onto its GPUs ------------------------------------------------------------------------

    def _place(self, attempts: Sequence[SlurmAttempt]) -> None:
        """Place and release. Of what Slurm may have been asked for already (an answer came late, or
        the service crashed), the job itself says what is left to do."""
        there = self._jobs_of([a for a in attempts if a.stage is Stage.PLACING])
        placed = self._as_they_are(attempts, there)
        fresh = [a for a in attempts if a.stage is Stage.HELD or _is_bare(there.get(a.key))]
        at = self._attempts.now()
        for attempt in fresh:
            attempt.sent_at, attempt.refusal = attempt.sent_at or at, ""
            attempt.move(Did.PLACE, at)
        if fresh:
            self._attempts.save(*fresh)
            said_of = self._slurm.write([self._update(attempt) for attempt in fresh])
            refused = [(a, said) for a, said in zip(fresh, said_of, strict=True) if said]
            placed += [a for a, said in zip(fresh, said_of, strict=True) if not said]
            placed += self._refused(refused)
        self._release(placed)

    def _jobs_of(self, attempts: Sequence[SlurmAttempt]) -> dict[Key, SlurmJob]:
        """The jobs of attempts as they are now. Ids are used again: a submit time, or our mark,
        tells jobs apart. What is not there is left to the next look."""
        if not attempts:
            return {}
        there, found = {job.id: job for job in self._slurm.jobs()}, {}
        for attempt in attempts:
            job, launch = there.get(attempt.slurm_id), attempt.launch
            if job is None or launch is None or attempt.submitted not in (None, job.submit):
                continue
            known = attempt.submitted is not None or is_slurm_id(attempt.key[0])
            if known or job.comment == script.mark(launch, self._site):
                found[attempt.key] = job
        return found

    def _as_they_are(
        self, attempts: Iterable[SlurmAttempt], there: Mapping[Key, SlurmJob]
    ) -> list[SlurmAttempt]:
        """Take in what became of jobs; those that are placed and wait for their release."""
        placed, changed = [], []
        for attempt in attempts:
            job = there.get(attempt.key)
            if job is None or _is_bare(job):
                continue
            if job.state in WAITING and job.priority == 0:
                placed.append(attempt)
            elif job.placed or not is_slurm_id(attempt.key[0]):  # let go, and perhaps over
                attempt.submitted = job.submit
                attempt.move(Did.LET_GO, self._attempts.now())
                changed.append(attempt)
            elif job.state in RUNNING:
                self._attempts.not_started(attempt, BY_HAND)
                changed.append(attempt)
        self._attempts.save(*changed)
        return placed

    def _refused(self, refused: Sequence[tuple[SlurmAttempt, str]]) -> list[SlurmAttempt]:
        """What Slurm would not place is over, if it still waits; those that are placed after all
        (by an update that came late)."""
        there = self._jobs_of([attempt for attempt, _ in refused])
        placed = self._as_they_are([attempt for attempt, _ in refused], there)
        for attempt, said in refused:
            if not _is_bare(there.get(attempt.key)):
                continue
            attempt.refusal = said
            if not is_slurm_id(attempt.key[0]):
                self._cancel_job(attempt.key, attempt.slurm_id)
            self._attempts.not_started(attempt, said)
            self._attempts.save(attempt)
        return placed

    def _release(self, attempts: Sequence[SlurmAttempt]) -> None:
        """Let jobs go. They may run from before Slurm is asked: a late answer leaves it to the next
        look whether they do, or wait and are to be released again."""
        if not attempts:
            return
        at = self._attempts.now()
        for attempt in attempts:
            attempt.move(Did.RELEASE, at)
        self._attempts.save(*attempts)
        self._timing.look_at = 0.0
        said_of = self._slurm.write([f"release {attempt.slurm_id}" for attempt in attempts])
        for attempt, said in zip(attempts, said_of, strict=True):
            attempt.move(Did.HEARD, at)
            if said:
                self.log.warning("slurm_release", job=attempt.key[0], why=said)
        self._attempts.save(*attempts)

    def _update(self, attempt: SlurmAttempt) -> str:
        launch = attempt.launch
        assert launch is not None
        where = script.placement(launch, self._shape)
        ours = not is_slurm_id(launch.job_id)
        why = self._queue.words(launch.job_id) if self._queue is not None else ""
        total = sum(map(len, launch.gpus))
        ask = self._queue.ask(launch.job_id) if self._queue is not None and not ours else ""
        text = f"{ask or f'gpus={total}'}; on {where}" + (f"; {why}" if why else "")
        return script.update(attempt.slurm_id, launch, self._shape, text, ours=ours)

    # --- out of Slurm -------------------------------------------------------------------------

    def _cancel_all(self, attempts: Iterable[SlurmAttempt]) -> None:
        """As many as there is time for, those first that were not asked for yet."""
        until = time.monotonic() + self._pace.submit_s
        for attempt in sorted(attempts, key=lambda attempt: attempt.cancelled_at or 0.0):
            if time.monotonic() < until:
                self._cancel(attempt)

    def _cancel(self, attempt: SlurmAttempt) -> None:
        now, last = time.monotonic(), attempt.cancelled_at
        if self._timing.looked <= (last or 0.0):
            return  # never again before it was seen how the job is
        if last is not None and now < last + self._pace.again_s:
            return
        attempt.cancelled_at = now
        self._cancel_job(attempt.key, attempt.slurm_id)
        self._timing.look_at = 0.0

    def _cancel_job(self, key: Key, slurm_id: str) -> None:
        try:
            self._slurm.cancel(slurm_id)
        except SlurmError as error:  # it is over, or gone: the next look tells
            self.log.info("slurm_cancel", job=key[0], why=str(error))


def _is_bare(job: SlurmJob | None) -> bool:
    """Whether it waits and was given no GPUs yet."""
    return job is not None and job.state in WAITING and not job.placed
