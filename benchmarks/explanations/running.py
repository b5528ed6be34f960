"""A service that really runs: decider, analyst and API as processes of their own, asked over HTTP.

The demo's service with fake GPUs and real, short processes. Its people submit by the API; waits are
asked about by the API, the command line and the pages, and judged by the log as it was when the
question was asked (`sentences`). Time goes on meanwhile: right is what was so at some event between
question and answer.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Callable
from html import unescape
from pathlib import Path
from random import Random
from typing import Any
from urllib.request import Request, urlopen

from benchmarks.explanations.asked import Asked
from benchmarks.explanations.audit import Found
from benchmarks.explanations.foretold import of_log
from benchmarks.explanations.judge import Judge
from benchmarks.explanations.live import Follower
from benchmarks.explanations.log import Log
from benchmarks.explanations.printed import command, lines
from benchmarks.explanations.sentences import judged_between
from benchmarks.serving import free_port
from pipeline.demo import run as demo
from pipeline.demo.plan import plan
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
        demo.service(Path(folder) / "service", free_port()) as running,
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


class _Asking:
    """Asks about waiting jobs, and has the answers judged."""

    def __init__(self, folder: Path, running: demo.Running, found: Found, seed: int):
        self.store = Store(f"sqlite:///{folder / 'pellucid.db'}")
        self.follower = Follower(self.store, BundleStore(folder / "state" / "bundles"))
        self.database = folder / "pellucid.db"
        self.running, self.found, self.seed = running, found, seed
        self._named: list[tuple[float, dict[str, Any]]] = []

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
        self._ended()
        self.store.close()

    def _ask(self, operator: Client, job_id: str) -> None:
        found = self.found
        before, asked_at = Log.read(self.database), operator.cluster()["now"]
        try:
            told = operator.explain(job_id, analyse=True)
        except ServiceError:  # it has started meanwhile, or there was no time
            return
        answered_at = operator.cluster()["now"]
        analysis = told["analysis"]
        if not analysis:  # it does not wait any more
            return
        found.questions += 1
        if analysis["unavailable"]:
            return
        found.ages.append(answered_at - analysis["at"])
        self.follower.follow(analysis["seq"])
        core = self.follower.state.core
        if job_id not in core.jobs:
            return
        moment = before.until(before.head)
        begun = Random(f"{self.seed}/{job_id}").choice(moment.begun() or [""])
        asked = Asked(
            job_id,
            asked_at,
            answered_at,
            told,
            self._printed(job_id),
            lines(told, answered_at, "--full"),
            self._page(f"/jobs/{job_id}"),
            self._page(f"/jobs/{job_id}/blockers"),
            moment,
            core,
            operator.explain(job_id),
            operator.explain(begun) if begun else None,
        )
        log = Log.read(self.database)
        found.said.append(judged_between(asked, log, log.head, before.head))
        self._named += [(asked.analysis["at"], one) for one in told["analysis"]["holders"]]
        with self.running.client(core.jobs[job_id].job.user) as owner:
            own = owner.explain(job_id, analyse=True)
            if own["analysis"] and not own["analysis"]["unavailable"]:
                found.texts.append(lines(own, owner.cluster()["now"]))
        at = analysis["at"]
        judge = Judge(core, self.follower.account, self.seed)
        found.waits.append((job_id, at, judge.verdict(analysis, job_id, at)))

    def _printed(self, job_id: str) -> dict[str, Any]:
        """What the command line prints with --json; {} where it fails."""
        secret = self.running.secrets[demo.OPERATOR]
        return dict(
            json.loads(command(self.running.address, secret, "why", job_id, "--json") or "{}")
        )

    def _page(self, path: str) -> str:
        secret = self.running.secrets[demo.OPERATOR]
        request = Request(self.running.address + path)
        request.add_header("Authorization", f"Bearer {secret}")
        request.add_header("Accept", "*/*")
        with urlopen(request, timeout=60) as answer:
            return unescape(str(answer.read(), "utf-8"))

    def _ended(self) -> None:
        """When those that were named did end."""
        log = Log.read(self.database)
        self.found.foretold = list(of_log(log))
        for at, one in self._named:
            if one["kind"] == "running job":
                gone = log.gone(one["job"], at)
                self.found.ends.append((0.5, one["ends_in_s"], None if gone is None else gone - at))
