"""A real service: decider, analyst and API as processes of their own, asked over HTTP.

The demo's service with fake GPUs and real, short processes. Its people submit by the API. It is
asked about waiting jobs by the API, the command line and the pages; the answers are judged by the
log (`sentences`). Time goes on meanwhile: a statement is right if it was true at some event between
question and answer.

After each such question, `BURST` more are asked, `AT_ONCE` at a time, while other processes keep
all cores busy. Of these answers only two things are checked: no run that they name had ended before
the question, unless the answer is older than `STATED_S` and so says how old it is; and no waiting
job is said to have ended.
"""

from __future__ import annotations

import json
import multiprocessing
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
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
from benchmarks.explanations.reading import with_words
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
BURST, AT_ONCE = 25, 4
STATED_S = 3.0  # an answer older than this is printed with its age
OVER = ("ended", "cancelled", "lost", "refused")


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one question. Times are seconds since 1970. `told` is what the API returned;
    None: nothing.
    """

    job_id: str
    asked_at: float
    answered_at: float
    told: dict[str, Any] | None

    def wrong(self, log: Log) -> str:
        """Return what is wrong in the answer by the log, in words; "" if nothing is."""
        if self.told is None or self.told["analysis"] is None:
            over = self.told is not None and self.told["phase"] in OVER
            false = over and not _gone(log, self.job_id, 0.0, self.answered_at)
            return f"{self.job_id} is called over, and is not" if false else ""
        analysis = self.told["analysis"]
        if analysis["unavailable"] or self.answered_at - analysis["at"] >= STATED_S:
            return ""
        for one in analysis["holders"]:
            since = analysis["at"] - (one["ran_s"] or 0.0)
            if one["kind"] == "running job" and _gone(log, one["job"], since, self.asked_at):
                return f"{one['job']} had ended when {self.job_id} was asked about"
        return ""


def _gone(log: Log, job_id: str, since: float, by: float) -> bool:
    """Return whether a job had left, by time `by`, the GPUs that it had since time `since`."""
    at = log.gone(job_id, since)
    return at is not None and at < by


def audit(wanted: int, seed: int, minutes: float = MINUTES, jobs: int = JOBS) -> Found:
    """Start a service, let it run for `minutes`, and judge explanations of `wanted` waiting jobs,
    at most `MOST`. Return what was found.
    """
    found = Found("running-service")
    with living(jobs, minutes, seed) as (folder, running, going_on):
        _Asking(folder, running, found, seed).run(min(wanted, MOST), going_on)
    return found


class _Asking:
    """Asks a running service about its waiting jobs, and has the answers judged."""

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
                self._burst([random.choice(waiting) for _ in range(BURST)])
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
        told = with_words(told)
        analysis = told["analysis"]
        found.ages.append(answered_at - analysis["at"])
        self.follower.follow(analysis["seq"])
        core = self.follower.state.core
        if job_id not in core.jobs:
            return
        moment = before.until(before.head)
        begun = Random(f"{self.seed}/{core.jobs[job_id].seq}").choice(moment.begun() or [""])
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

    def _burst(self, jobs: Sequence[str]) -> None:
        """Ask many questions at once, while all processors are busy. Count wrong answers and the
        ages of right ones. A question does not count if its job started before the answer.
        """
        with busy(multiprocessing.cpu_count()), ThreadPoolExecutor(AT_ONCE) as asking:
            answers = list(asking.map(self._quick, jobs))
        log = Log.read(self.database)
        moment = log.until(log.head)
        for one in answers:
            analysis = one.told and one.told["analysis"]
            wrong = one.wrong(log)
            known = analysis and not analysis["unavailable"]
            if not known and not wrong and not moment.queued(one.job_id):
                continue
            self.found.questions += 1
            self.found.untrue += [wrong] if wrong else []
            if analysis and known and not wrong:
                self.found.ages.append(one.answered_at - analysis["at"])

    def _quick(self, job_id: str) -> Answer:
        asked_at, secret = time.time(), self.running.secrets[demo.OPERATOR]
        with Client(self.running.address, secret, timeout_s=60.0) as client:
            try:
                told: dict[str, Any] | None = client.explain(job_id, analyse=True)
            except ServiceError:
                told = None
        return Answer(job_id, asked_at, time.time(), told)

    def _printed(self, job_id: str) -> dict[str, Any]:
        """Return what the command line prints with --json; {} where it fails."""
        secret = self.running.secrets[demo.OPERATOR]
        found = json.loads(command(self.running.address, secret, "why", job_id, "--json") or "{}")
        return with_words(found) if found.get("analysis") else found

    def _page(self, path: str) -> str:
        secret = self.running.secrets[demo.OPERATOR]
        request = Request(self.running.address + path)
        request.add_header("Authorization", f"Bearer {secret}")
        request.add_header("Accept", "*/*")
        with urlopen(request, timeout=60) as answer:
            return unescape(str(answer.read(), "utf-8"))

    def _ended(self) -> None:
        """Record when the runs that answers named really ended."""
        log = Log.read(self.database)
        self.found.foretold = list(of_log(log))
        for at, one in self._named:
            if one["kind"] == "running job":
                gone = log.gone(one["job"], at)
                self.found.ends.append((0.5, one["ends_in_s"], None if gone is None else gone - at))


@contextmanager
def living(
    jobs: int, minutes: float, seed: int
) -> Iterator[tuple[Path, demo.Running, Callable[[], bool]]]:
    """Run the demo's service while simulated people submit jobs. Yield its folder, the service, and
    a function that returns whether more submissions will come.
    """
    stopping = threading.Event()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "service"
        with demo.service(folder, free_port()) as running:
            sent = plan(jobs, minutes, seed)
            feeding = threading.Thread(target=demo.feed, args=(running, sent, stopping.is_set))
            feeding.start()
            try:
                yield folder, running, feeding.is_alive
            finally:
                stopping.set()
                feeding.join()


def _compute() -> None:
    while True:
        pass


@contextmanager
def busy(cores: int) -> Iterator[None]:
    """Keep `cores` processor cores busy until the `with` block ends."""
    burning = [multiprocessing.Process(target=_compute, daemon=True) for _ in range(cores)]
    for one in burning:
        one.start()
    try:
        yield
    finally:
        for one in burning:
            one.terminate()
