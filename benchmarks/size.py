"""Measures how a service's work grows with the jobs that wait and those that have ended.

    python -m benchmarks.size --json [--waiting 1000,10000,50000] [--ended 0,20000] [--asked 60]

For each size it makes a real log in SQLite, decided under `pellucid` on the simulated backend, in
this process: jobs of several sizes, owners and wishes are submitted between two passes, behind jobs
that hold every GPU. Then it measures, in CPU time of this process: a pass after one more submission
(commit included); reading the whole log anew; storing the state, and a start from it; the answers
of pages, metrics, `ps` and `why` (the median of several, since the longest tells of the machine's
load); and the analyst's answers to questions. `whatif_95_s` is the time within which 95 of 100
what-ifs are answered, about `--asked` jobs all along the line, each changed in another way.
`silent_s` is the longest wall time without a sign of life from the decider: its supervisor waits
for 15 s. `growth` compares the size with the most waiting jobs to that with the fewest. 200,000
waiting or 500,000 ended are options, and take long. Prints whether `size_budget.json` holds.
"""

from __future__ import annotations

import argparse
import gc
import logging
import math
import resource
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import structlog
from fastapi.testclient import TestClient
from sqlalchemy import Connection, insert

from benchmarks.calibration import program
from scheduler.assembly import CoreSpec
from scheduler.backends.base import Launch
from scheduler.backends.events import Event, Kind
from scheduler.backends.simulated import JobOutcome, SimulatedBackend, World
from scheduler.backends.submission import Submission
from scheduler.core.cluster import ClusterSpec
from scheduler.service.analyst.process import Analyst
from scheduler.service.api.limits import Limits
from scheduler.service.app import create_app
from scheduler.service.decide.decider import Decider
from scheduler.service.log.bundles import BundleStore
from scheduler.service.log.header import LogHeader, establish
from scheduler.service.log.record import first_row
from scheduler.service.log.snapshots import StateCheckpoints
from scheduler.service.log.store.schema import prepare
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import jobs
from scheduler.service.settings import Settings
from scheduler.simulation.work import Work

BUDGET = Path(__file__).with_name("size_budget.json")
NODES, PER_NODE, START = 256, 8, 1.7e9
SHORT_S, LONG_S = 1.0, 1e7
WHOLE = "fold_s", "start_s", "save_s"
PASSES, ASKED = 15, 15  # the median of so many passes, and of so many answers
PAGES = {
    "page_cluster": "/",
    "page_list": "/list",
    "page_jobs": "/jobs?vc=vc&owner=user1&gpus=1&phase=queued",
    "metrics": "/metrics",
    "ps": "/api/v1/jobs",
    "why": "/api/v1/jobs/{job}/explain",
}
# answers of the analyst, about a job in the middle of the line and one at its front
QUESTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "order": ("order", {"vc": "vc", "limit": 50}),
    "whatif": ("whatif", {"job_id": "{middle}", "changes": {"gpus": 1}, "others": True}),
    "whatif_front": ("whatif", {"job_id": "{front}", "changes": {"gpus": 1}, "others": True}),
    "helps": ("why", {"job_id": "{middle}", "helps": True}),
}
CHANGES: tuple[dict[str, Any], ...] = (
    {"gpus": 1},
    {"gpus": 2},
    {"time_limit_s": 3600.0},
    {"share": False},
    {"first": True},
)
Figures = dict[str, float]


class Service:
    """A service in this process, with its log in a folder and a simulated backend.

    Args:
        start: the time that its clock shows at first, in seconds.
        submitted: number of jobs that the log in the folder already has.
    """

    def __init__(self, folder: Path, start: float = START, submitted: int = 0):
        url = f"sqlite:///{folder / 'log.db'}"
        self.store = Store(url)
        prepare(self.store)
        spec = CoreSpec.of(ClusterSpec({"vc": NODES}, PER_NODE), "pellucid")
        establish(self.store, LogHeader(spec, START, backend="simulated"))
        self._bundles = BundleStore(folder / "bundles")
        self._snapshots = StateCheckpoints(folder / "snapshots", self._bundles.find)
        self.world = World(_outcome, start=start)
        self._submitted = submitted
        self._beat = self.silent_s = 0.0
        given: dict[str, Any] = {
            "database": url,
            "backend": "simulated",
            "auth": "off",
            "state_dir": folder,
        }
        app = create_app(
            Settings(**given),
            store=self.store,
            limits=Limits(rate_per_s=1e9, burst=10**9),
            clock=time.time,
        )
        self.client = TestClient(app)
        self.hand_over(snapshots=True)

    def hand_over(self, *, snapshots: bool) -> None:
        """Replace the decider by a new one, which reads the log from the database as after a
        restart; with `snapshots`, it begins from the latest stored state instead.
        """
        decider = Decider(
            self.store,
            lambda: SimulatedBackend(self.world),
            self._bundles,
            holder=f"at {time.monotonic()}",
            lease_s=1e6,
            snapshots=self._snapshots if snapshots else None,
        )
        decider._alive = self._heard
        if not decider.take_over():
            raise RuntimeError("the last decider has not let go")
        self.decider = decider

    def _heard(self) -> None:
        now = time.monotonic()
        self._beat, self.silent_s = now, max(self.silent_s, now - self._beat)

    def submit(self, count: int, kind: str) -> None:
        """Submit `count` jobs in one transaction. `kind` is `short` (one GPU), `holds` (whole
        nodes, for long) or `waits`.
        """
        events = []
        for _ in range(count):
            n = self._submitted = self._submitted + 1
            job = Submission(
                job_id=f"{kind}-{n}",
                submitted_at=self.world.now(),
                command=("train",),
                owner=f"user{n % 40}",
                vc="vc",
                gpus={"short": 1, "holds": PER_NODE, "waits": (1, 1, 2, 4, 8, 16)[n % 6]}[kind],
                share=n % 20 != 0,
            )
            events.append(
                Event(Kind.SUBMITTED, self.world.now(), job.job_id, job.owner, body=job.body())
            )

        def rows(connection: Connection, appended: list[Event]) -> None:
            connection.execute(insert(jobs), [first_row(event) for event in appended])

        self.store.append(events, rows)

    def decide(self) -> None:
        """Take every pass (one round of decisions) that is due."""
        self._beat = time.monotonic()
        self.decider.turn(0.0)
        while self.decider.state.waiting:
            self.decider.turn(0.0)

    def end(self, count: int) -> None:
        """Submit `count` jobs, and let them run and end."""
        for begun in range(0, count, NODES * PER_NODE):
            self.submit(min(NODES * PER_NODE, count - begun), "short")
            self.decide()
            self.decider.turn(2 * SHORT_S)  # the simulated clock moves on to their ends
            while any(job.startswith("short") for job in self.decider.state.core.jobs):
                self.decider.turn(2 * SHORT_S)


def _outcome(launch: Launch) -> JobOutcome:
    return JobOutcome(Work(SHORT_S if launch.job_id.startswith("short") else LONG_S))


def measure_all(
    waiting: Sequence[int], ended: int, asked: int = 0
) -> Iterator[tuple[int, int, Figures]]:
    """Build one log of `ended` ended jobs. For each number of waiting jobs, measure on a copy of
    that log and yield (waiting, ended, figures).
    """
    with TemporaryDirectory() as base:
        before = Service(Path(base))
        before.end(ended)
        before.decider.let_go()
        before.store.close()
        for count in waiting:
            yield count, ended, measure(Path(base), before.world.now(), count, ended, asked)


def measure(base: Path, start: float, waiting: int, ended: int, asked: int = 0) -> Figures:
    """Return the figures for one number of waiting jobs, on a copy of the log in `base`. `asked` is
    the number of what-if questions.
    """
    with TemporaryDirectory() as folder:
        shutil.copytree(base, folder, dirs_exist_ok=True)
        service = Service(Path(folder), start, ended)
        service.submit(NODES, "holds")
        service.decide()
        service.submit(waiting, "waits")
        service.silent_s = 0.0
        found: Figures = {"backlog_s": _cpu(service.decide), "silent_s": service.silent_s}
        passes = []
        for _ in range(PASSES):
            service.submit(1, "waits")
            passes.append(_cpu(service.decide))
        found["pass_ms"] = 1000 * sorted(passes)[PASSES // 2]
        gc.collect()
        gc.freeze()  # the decider's state is in no process that answers
        for name, path in PAGES.items():
            address = path.format(job=f"waits-{service._submitted - waiting // 2}")
            _get(service, address)  # what is loaded at the first one
            found[f"{name}_ms"] = 1000 * median(
                _cpu(partial(_get, service, address)) for _ in range(ASKED)
            )
        found |= _questions(service, waiting, asked)
        found["save_s"] = _cpu(service.decider.let_go)  # it keeps the state in a file
        for name, snapshots in (("start_s", True), ("fold_s", False)):
            service.decider.let_go()
            gc.collect()
            found[name] = _cpu(partial(service.hand_over, snapshots=snapshots))
        service.store.close()
    return {name: round(value, 3) for name, value in found.items()}


def _questions(service: Service, waiting: int, asked: int) -> Figures:
    """Return the CPU seconds of the answer to each kind of question, measured right after the
    analyst read the log.
    """
    analyst = Analyst(service.store, service._bundles, holder="asked", lease_s=1e6)
    analyst.take_over()
    last, found = service._submitted, Figures()
    named = {
        "middle": f"waits-{last - waiting // 2}",
        "front": f"waits-{last - PASSES - waiting + 7}",
    }
    for name, (kind, body) in QUESTIONS.items():
        if job_id := body.get("job_id", ""):
            body = body | {"job_id": job_id.format(**named)}
        analyst._futures = None
        found[f"{name}_s"] = _cpu(partial(_asked, analyst, kind, body))
    if asked:
        found["whatif_95_s"] = _of_100(95, [*_whatifs(analyst, last, waiting, asked)])
    if analyst.lease is not None:
        analyst.store.let_go(analyst.lease)
    return found


def _whatifs(analyst: Analyst, last: int, waiting: int, asked: int) -> Iterator[float]:
    """Ask what-if questions about `asked` jobs spread over the line. Yield the CPU seconds of each;
    infinity where a question has no answer.
    """
    for number in range(asked):
        job_id = f"waits-{last - (waiting - 1) * number // max(1, asked - 1)}"
        body = {"job_id": job_id, "changes": CHANGES[number % len(CHANGES)], "others": True}
        begun = time.process_time()
        answer = analyst.reply("whatif", body)
        spent = time.process_time() - begun
        yield math.inf if answer.get("unavailable") else spent


def _of_100(share: int, values: Sequence[float]) -> float:
    """Return the smallest value that at least `share` of 100 values do not exceed."""
    return sorted(values)[math.ceil(share * len(values) / 100) - 1]


def _asked(analyst: Analyst, kind: str, body: dict[str, Any]) -> None:
    answer = analyst.reply(kind, body)
    if answer.get("unavailable"):
        raise RuntimeError(f"{kind} was answered: {answer['unavailable']}")


def _get(service: Service, address: str) -> None:
    answer = service.client.get(address)
    if answer.status_code != 200:
        raise RuntimeError(f"{address} was answered {answer.status_code}: {answer.text[:200]}")


def _cpu(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def growth(rows: Sequence[tuple[int, int, Figures]]) -> Figures:
    """Return the ratio of each figure with the most waiting jobs to the figure with the fewest, at
    an equal number of ended jobs.
    """
    fewest, most = min(row[0] for row in rows), max(row[0] for row in rows)
    ended = min(row[1] for row in rows)
    of = {waiting: found for waiting, there, found in rows if there == ended}
    return {
        f"{name}_growth": round(of[most][name] / max(of[fewest][name], 1e-6), 2)
        for name in of[most]
    }


def measured(asked: argparse.Namespace) -> dict[str, Any]:
    """Return what was measured with every size of the service's database, how each figure grows
    with the size, and the figures of the largest size."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    rows = [row for ended in asked.ended for row in measure_all(asked.waiting, ended, asked.asked)]
    return {
        "sizes": [{"waiting": w, "ended": e, **found} for w, e, found in rows],
        "largest": _largest(*max(rows, key=lambda row: row[:2])),
        "growth": growth(rows),
        "peak_rss_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def _largest(waiting: int, ended: int, found: Figures) -> Figures:
    """Return the figures of one size for the budget. Those of work that reads the whole log are
    divided by the number of its jobs, in thousands.
    """
    thousands = (waiting + ended) / 1000
    by = {f"{name}_by_1000": round(found[name] / thousands, 4) for name in WHOLE}
    return {name: value for name, value in (found | by).items() if name not in WHOLE}


def _counts(text: str) -> tuple[int, ...]:
    return tuple(int(one) for one in text.split(","))


if __name__ == "__main__":
    program(
        __doc__,
        BUDGET,
        measured,
        waiting={"type": _counts, "default": (1_000, 10_000, 50_000)},
        ended={"type": _counts, "default": (0,)},
        asked={"type": int, "default": 0, "metavar": "WHAT-IFS"},
    )
