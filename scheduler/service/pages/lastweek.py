"""Shows which starts a change of the models would move, by simulating last week with both models.

The simulation runs in a process of its own, with limits of time and memory, so that the service's
pages still answer. That process reads the question from standard input, and prints the answer as
JSON.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import isfinite
from pathlib import Path
from threading import Lock
from typing import Any

from sqlalchemy import Connection, or_, select

from features.job import Job
from features.states import State
from models.bundle import Bundle, BundleError
from scheduler.assembly import CoreSpec, assemble
from scheduler.backends.submission import Submission
from scheduler.core.estimates import LiveEstimator
from scheduler.service.log.export import OVER, profiles
from scheduler.service.log.present import Present
from scheduler.service.log.record import HOLDS, profile_of
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import jobs
from scheduler.service.pages.workbench import Asked, NoEdit, with_shape
from scheduler.simulation.contention import SimulatedContention
from scheduler.simulation.engine import Engine, JobResult
from scheduler.simulation.work import Work

WEEK_S = 7 * 86_400.0
LEARNS_S = 3 * WEEK_S  # before it: users' and scripts' histories begin there
MOST = 4000  # jobs that are played, the latest
MOST_LEARNED = 20_000
MOVED_S = 60.0  # a start that moves by less is the same
SHOWN = 10  # starts that move most, each way
LIMIT_S = 60.0  # of the processor, and of time
LIMIT_MIB = 2048
log = logging.getLogger("pellucid.pages")
_ONE = Lock()  # at a time, in each process that serves pages


class NoReplay(ValueError):
    """Raised where last week cannot be simulated. The text is a sentence for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A job whose start would move.

    Attributes:
        as_it_is, as_it_would_be: its start with the present and with the changed models, seconds
            since the epoch.
    """

    job_id: str
    user: str
    gpus: int
    as_it_is: float
    as_it_would_be: float

    @property
    def later_s(self) -> float:
        """Return by how many seconds the start would be later; below 0: earlier."""
        return self.as_it_would_be - self.as_it_is


@dataclass(frozen=True, slots=True, kw_only=True)
class Starts:
    """What a change of the models does to the starts of last week's jobs.

    Attributes:
        jobs: number of jobs that were simulated and compared.
        since: only jobs submitted from then on, seconds since the epoch.
        whole: whether all of the week was simulated, not only its last jobs.
        earlier, later: the starts that move most, in each direction.
        count_earlier, count_later: number of starts that move by a minute or more.
        wait_s, wait_then_s: mean wait with the present and with the changed models, seconds.
    """

    jobs: int = 0
    since: float = 0.0
    whole: bool = True
    earlier: tuple[Start, ...] = ()
    later: tuple[Start, ...] = ()
    count_earlier: int = 0
    count_later: int = 0
    wait_s: float = 0.0
    wait_then_s: float = 0.0


def played_apart(store: Store, bundle: Path, asked: Asked, now: float) -> Starts:
    """Return which starts of last week a change moves, simulated in another process. Raise NoReplay
    where last week cannot be simulated, or another replay runs.

    Args:
        bundle: folder of the models in use.
        asked: the change of a shape function.
    """
    if not _ONE.acquire(blocking=False):
        raise NoReplay("Another replay runs: try again in a minute.")
    try:
        url = store.engine.url.render_as_string(hide_password=False)
        given = {"database": url, "bundle": str(bundle), "asked": asdict(asked), "now": now}
        done = subprocess.run(
            [sys.executable, "-m", __name__],
            input=json.dumps(given).encode(),
            capture_output=True,
            timeout=LIMIT_S,
            check=True,
            start_new_session=True,
        )
        found = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        raise NoReplay(f"The replay took longer than {LIMIT_S:g} s, and was given up.") from None
    except (subprocess.CalledProcessError, OSError, ValueError) as error:
        printed = (getattr(error, "stderr", None) or b"").decode(errors="replace") or str(error)
        log.warning("a replay failed: %s", printed[-4000:])
        raise NoReplay("The replay failed. The service's own output says why.") from None
    finally:
        _ONE.release()
    if "why_not" in found:
        raise NoReplay(found["why_not"])
    return read(found)


def read(document: Mapping[str, Any]) -> Starts:
    """Return a `Starts` from the JSON of its `asdict`."""
    lists = {name: tuple(Start(**one) for one in document[name]) for name in ("earlier", "later")}
    return Starts(**{**document, **lists})


def starts(store: Store, bundle: Bundle, asked: Asked, now: float) -> Starts:
    """Simulate the week before `now` with a bundle of models, and with one of its shape functions
    changed. Return which starts differ.

    Raise NoEdit where that change cannot be made, and NoReplay where the week cannot be simulated.
    """
    changed = with_shape(bundle, asked)
    with store.reading() as connection:
        present = Present.read(store, connection)
        if present is None:
            raise NoReplay("Nothing was submitted yet.")
        spec = replace(present.spec, cluster=present.nodes.spec())
        if spec.kind.capabilities.twin:
            raise NoReplay("Slurm decides here when jobs start: none follows from these models.")
        week = _week(connection, now)
    if not week.played:
        raise NoReplay("No job of last week has started.")
    both = [_play(spec, one, week) for one in (bundle, changed)]
    return _compared(both, week)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Week:
    """The jobs of a week, as they were.

    Attributes:
        played: jobs that had GPUs or waited in the week, in order.
        carried: ids of those that were submitted before the week.
        work: how long each ran and how it ended, by job id.
        learned: jobs that ended before the week, from which predictions learn, as (job, work).
        since: when the week begins, seconds since the epoch.
        whole: whether all its jobs are here, not only the last.
    """

    played: Sequence[Job]
    carried: frozenset[str]
    work: Mapping[str, Work]
    learned: Sequence[tuple[Job, Work]]
    since: float
    whole: bool


def _week(connection: Connection, now: float) -> _Week:
    since = now - WEEK_S
    ran = jobs.c.started_at.is_not(None)
    over = jobs.c.phase.in_([phase.value for phase in OVER]) & jobs.c.ended_at.is_not(None)
    holds = jobs.c.phase.in_([phase.value for phase in HOLDS])
    query = select(jobs).where(ran, or_(holds, over & (jobs.c.ended_at >= since)))
    rows = connection.execute(query.order_by(jobs.c.submitted_at.desc()).limit(MOST + 1))
    found = list(rows.mappings())
    whole = len(found) <= MOST
    found = found[:MOST][::-1]
    if not whole:
        since = max(since, found[0]["submitted_at"])
    before = over & (jobs.c.ended_at < since) & (jobs.c.ended_at >= since - LEARNS_S)
    query = select(jobs).where(ran, before).order_by(jobs.c.ended_at.desc()).limit(MOST_LEARNED)
    seen = profiles(connection, since - LEARNS_S)
    ended = {row["job_id"]: row["ended_at"] for row in found if row["ended_at"] is not None}
    played, work, carried = list[Job](), dict[str, Work](), set[str]()
    for row in found:
        job = Submission.from_body(json.loads(row["spec"])).job()
        began, end = row["started_at"], row["ended_at"] or now
        waits = [ended[one] for one in _before(job) if one in ended]
        submitted = max(job.submit_time, *(at for at in waits if at <= began), 0.0)
        if submitted < since:
            carried.add(job.job_id)
            submitted, began = since, max(began, since)
        played.append(replace(job, submit_time=submitted, after="", after_any=""))
        profile = profile_of({"profile": seen.get(job.job_id)})
        state = State(row["state"]) if row["state"] else State.COMPLETED
        work[job.job_id] = Work(max(0.0, end - began), state, None, profile)
    learned = []
    for row in connection.execute(query).mappings():
        job = Submission.from_body(json.loads(row["spec"])).job()
        lasted = Work(
            max(0.0, row["ended_at"] - row["started_at"]), State(row["state"] or State.UNKNOWN)
        )
        learned.append((job, lasted))
    played.sort(key=lambda job: job.submit_time)
    return _Week(
        played=played,
        carried=frozenset(carried),
        work=work,
        learned=learned,
        since=since,
        whole=whole,
    )


def _before(job: Job) -> list[str]:
    return [one for one in f"{job.after},{job.after_any}".split(",") if one]


def _play(spec: CoreSpec, bundle: Bundle, week: _Week) -> Mapping[str, JobResult]:
    """Simulate the jobs of a week under the models of a bundle. Return each job's result, by job
    id.
    """
    estimator = LiveEstimator()
    moments = list[tuple[float, int, Job, Work]]()
    for job, work in week.learned:
        moments.append((job.submit_time, 1, job, work))
        moments.append((min(job.submit_time + work.duration_s, week.since), 0, job, work))
    for at, submits, job, work in sorted(moments, key=lambda one: one[:2]):
        if submits:
            estimator.submitted(job, at)
            estimator.started(job.job_id, at)
        else:
            estimator.ended(job.job_id, work.state, work.duration_s, at)
    core = assemble(spec, estimator)
    core.use(bundle)
    engine = Engine(core, week.played, dict(week.work), SimulatedContention())
    return {one.job.job_id: one for one in engine.run().jobs}


def _compared(both: Sequence[Mapping[str, JobResult]], week: _Week) -> Starts:
    moved, waits = list[Start](), list[tuple[float, float]]()
    for job in week.played:
        is_, then = (one[job.job_id].start_time for one in both)
        if job.job_id in week.carried or is_ is None or then is None:
            continue
        waits.append((is_ - job.submit_time, then - job.submit_time))
        if abs(then - is_) >= MOVED_S:
            moved.append(
                Start(
                    job_id=job.job_id,
                    user=job.user,
                    gpus=job.gpus,
                    as_it_is=is_,
                    as_it_would_be=then,
                )
            )
    moved.sort(key=lambda one: one.later_s)
    earlier, later = [one for one in moved if one.later_s < 0], [o for o in moved if o.later_s > 0]
    count = max(1, len(waits))
    return Starts(
        jobs=len(waits),
        since=week.since,
        whole=week.whole,
        earlier=tuple(earlier[:SHOWN]),
        later=tuple(later[::-1][:SHOWN]),
        count_earlier=len(earlier),
        count_later=len(later),
        wait_s=sum(one for one, _ in waits) / count,
        wait_then_s=sum(one for _, one in waits) / count,
    )


def main() -> None:
    """Read a question from standard input, simulate last week, and print the answer as JSON."""
    os.nice(10)
    for limit, most in ((resource.RLIMIT_CPU, int(LIMIT_S)), (resource.RLIMIT_AS, LIMIT_MIB << 20)):
        resource.setrlimit(limit, (most, most))
    given = json.loads(sys.stdin.read())
    store = Store(given["database"])
    try:
        assert isfinite(given["now"])
        bundle = Bundle.load(Path(given["bundle"]))
        found = asdict(starts(store, bundle, Asked(**given["asked"]), given["now"]))
    except (NoEdit, NoReplay, BundleError) as error:
        found = {"why_not": str(error)}
    finally:
        store.close()
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
