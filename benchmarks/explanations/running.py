"""A service that really runs: decider, analyst and API as processes of their own, asked over HTTP.

The demo's service with fake GPUs and real, short processes. Its people submit by the API, waits are
asked about by the API, and the judge reads the log up to the event that an answer was given at.
Time goes on meanwhile: suggestions, which are worked out a moment later, are not judged here.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from socket import create_server

from benchmarks.explanations.audit import Found
from benchmarks.explanations.judge import Judge
from benchmarks.explanations.live import Follower
from features.codec import decode
from pipeline.demo import run as demo
from pipeline.demo.plan import plan
from pipeline.printed.why import lines_of
from scheduler.explain.explanation import Explanation
from scheduler.service.client import Client, ServiceError
from scheduler.service.log.bundles import BundleStore
from scheduler.service.log.store.store import Store

MINUTES = 4.0  # in which its jobs come
JOBS = 360  # more than there is room for
LONGEST_S = 900.0  # of the whole audit
MOST = 40  # waits: time goes on while they are asked about


def audit(wanted: int, seed: int, minutes: float = MINUTES, jobs: int = JOBS) -> Found:
    """Start a service, let it live, and judge `wanted` of its waits, at most `MOST`."""
    found = Found("running-service")
    stopping = threading.Event()
    with (
        tempfile.TemporaryDirectory() as folder,
        demo.service(Path(folder) / "service", _free_port()) as running,
    ):
        sent = plan(jobs, minutes, seed)
        feeding = threading.Thread(target=demo.feed, args=(running, sent, stopping.is_set))
        feeding.start()
        try:
            _Asking(Path(folder) / "service", running, found, seed).run(
                min(wanted, MOST), feeding.is_alive
            )
        finally:
            stopping.set()
            feeding.join()
    return found


def _free_port() -> int:
    with create_server(("127.0.0.1", 0)) as held:
        return int(held.getsockname()[1])


class _Asking:
    """Asks about waiting jobs, and has the answers judged."""

    def __init__(self, folder: Path, running: demo.Running, found: Found, seed: int):
        self.store = Store(f"sqlite:///{folder / 'pellucid.db'}")
        self.follower = Follower(self.store, BundleStore(folder / "state" / "bundles"))
        self.running, self.found, self.seed = running, found, seed

    def run(self, wanted: int, going_on: Callable[[], bool]) -> None:
        until, random = time.monotonic() + LONGEST_S, Random(self.seed)
        with self.running.client() as operator:
            while len(self.found.waits) < wanted and time.monotonic() < until:
                waiting = [job["job_id"] for job in operator.jobs(phase="queued")]
                if not waiting and not going_on():
                    break
                if not waiting:
                    time.sleep(0.5)
                    continue
                self._ask(operator, random.choice(waiting))
        self.store.close()

    def _ask(self, operator: Client, job_id: str) -> None:
        found = self.found
        try:
            analysis = operator.explain(job_id, analyse=True)["analysis"]
        except ServiceError:  # it has started meanwhile, or there was no time
            return
        if not analysis or analysis["unavailable"]:
            return
        self.follower.follow(analysis["seq"])
        core, at = self.follower.state.core, analysis["at"]
        with self.running.client(core.jobs[job_id].job.user) as owner:
            own = owner.explain(job_id, analyse=True)
            if own["analysis"] and not own["analysis"]["unavailable"]:
                found.texts.append(
                    "\n".join(lines_of(decode(Explanation, own), owner.cluster()["now"]))
                )
        judge = Judge(core, self.follower.account, self.seed)
        found.waits.append((job_id, at, judge.verdict(analysis, job_id, at)))
