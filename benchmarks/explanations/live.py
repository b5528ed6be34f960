"""Runs a service in one process (log, decider, analyst and API on a simulated backend) and audits
its explanations.

Simulated people submit jobs by the API, and an operator drains and opens nodes. Why jobs wait is
asked by the API, as `pellucid why` does. The judge reads the log by itself.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from random import Random
from typing import Any

from fastapi.testclient import TestClient

from benchmarks.explanations.asked import Asked
from benchmarks.explanations.audit import Found
from benchmarks.explanations.judge import Account, Judge
from benchmarks.explanations.log import Log
from benchmarks.explanations.printed import lines
from benchmarks.explanations.reading import with_words
from benchmarks.explanations.sentences import judged
from features.job import Profile
from features.schema import State as EndState
from scheduler.assembly import CoreSpec
from scheduler.backends.base import Launch
from scheduler.backends.events import Kind
from scheduler.backends.simulated import JobOutcome, SimulatedBackend, World
from scheduler.core.cluster import ClusterSpec
from scheduler.core.settings import ProfilingPartition
from scheduler.service.analyst.process import Analyst
from scheduler.service.api import tokens
from scheduler.service.api.auth import service_user
from scheduler.service.api.limits import Limits
from scheduler.service.app import create_app
from scheduler.service.decide.decider import Decider
from scheduler.service.log.bundles import BundleStore
from scheduler.service.log.fold import State
from scheduler.service.log.header import LogHeader, establish
from scheduler.service.log.store.schema import prepare
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.visibility import Role
from scheduler.service.settings import Settings
from scheduler.simulation.work import Work

VCS = {"vision": 3, "language": 2, "speech": 1}
GPUS = ((1, 50), (2, 22), (4, 16), (8, 10), (16, 2))  # how many, how often of 100
PEOPLE = {"ada": ("vision", "language"), "alan": ("language", "speech"), "grace": ("vision",)}
OPERATOR = "olga"
LOAD, MEDIAN_S = 1.15, 1500.0
DRAIN_S = 6 * 3600.0  # another node is drained so often


@dataclass(frozen=True, slots=True)
class Sent:
    """A job that a simulated user submits, `after_s` seconds after the start."""

    after_s: float
    user: str
    asked: dict[str, Any]


def plan(jobs: int, seed: int) -> list[Sent]:
    """Return the jobs that are submitted, with their times: slightly more work than the GPUs can
    do.
    """
    random, after_s, sent = Random(seed), 0.0, []
    gpus_in_all = 8 * sum(VCS.values())
    for number in range(jobs):
        user = random.choice(list(PEOPLE))
        vc = random.choice(PEOPLE[user])
        seconds = round(random.lognormvariate(0.0, 1.2) * MEDIAN_S, 1)
        (gpus,) = random.choices(*zip(*GPUS, strict=True))
        gpus = min(gpus, 8 * VCS[vc])
        after_s += random.expovariate(LOAD * gpus_in_all / (2.6 * 2.05 * MEDIAN_S))
        command = ["train", str(seconds), str(random.randrange(5, 95))]
        name = f"train-{number % 40}"
        sent.append(Sent(after_s, user, {"command": command, "gpus": gpus, "vc": vc, "name": name}))
    return sent


def _outcome(launch: Launch) -> JobOutcome:
    _, seconds, busy = launch.command
    profile = Profile(float(busy), float(busy) / 2, 40.0 * float(busy), False)
    return JobOutcome(Work(float(seconds), EndState.COMPLETED, profile=profile))


class Service:
    """A service on a simulated backend, with methods that act as its users."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.store = Store(f"sqlite:///{folder / 'service.db'}")
        prepare(self.store)
        start = time.time()
        spec = CoreSpec.of(
            ClusterSpec(VCS, 8, gpu_type="A100"),
            "pellucid",
            profiling=ProfilingPartition(
                nodes={"vision": 1}, largest_share=1, limit_s=200.0, max_gpus=4
            ),
        )
        establish(self.store, LogHeader(spec, start, backend="simulated"))
        self.world, self.start = World(_outcome, start=start), start
        bundles = BundleStore(folder / "bundles")
        self.decider = Decider(
            self.store, lambda: SimulatedBackend(self.world), bundles, holder="audit", lease_s=1e6
        )
        assert self.decider.take_over()
        self.analyst = Analyst(
            self.store,
            bundles,
            holder="audit",
            lease_s=1e6,
            budget_s=1.0,
            samples=12,
        )
        self.analyst.search_s = 600.0  # what is judged is no matter of the processor
        assert self.analyst.take_over()
        everybody = {name: (Role.SUBMITTER, vcs) for name, vcs in PEOPLE.items()}
        everybody[OPERATOR] = (Role.OPERATOR, ())
        secrets = {name: self._secret(name, *who) for name, who in everybody.items()}
        self.app = create_app(
            Settings.model_validate(
                {
                    "database": f"sqlite:///{folder / 'service.db'}",
                    "auth": "on",
                    "backend": "simulated",
                }
            ),
            store=self.store,
            limits=Limits(rate_per_s=1e6, burst=10**6, answer_s=60.0),
            clock=self.world.now,
        )
        self.clients = {
            name: TestClient(self.app, headers={"Authorization": f"Bearer {secret}"})
            for name, secret in secrets.items()
        }
        self._asking = ThreadPoolExecutor(1)

    def _secret(self, name: str, role: Role, vcs: tuple[str, ...]) -> str:
        made = tokens.create(
            self.store, name, role, vcs=vcs, os_user=service_user(), now=time.time()
        )
        return made[1]

    def submit(self, sent: Sent) -> None:
        self.clients[sent.user].post("/api/v1/jobs", json=sent.asked).raise_for_status()

    def set_node(self, node: int, is_open: bool) -> None:
        asked = {"open": is_open, "reason": "cables"}
        self.clients[OPERATOR].put(f"/api/v1/nodes/{node}", json=asked).raise_for_status()

    def explain(self, who: str, job_id: str) -> dict[str, Any]:
        """Ask the API, as the user `who`, why a job waits, and let the analyst process work until
        it has answered. Return the answer.
        """
        return dict(self._get(who, f"/api/v1/jobs/{job_id}/explain?analyse=true").json())

    def plain(self, who: str, job_id: str) -> dict[str, Any]:
        """Ask the API, as the user `who`, why a job waits, without an analyst. Return the answer,
        which is made from the log alone.
        """
        return dict(self._get(who, f"/api/v1/jobs/{job_id}/explain").json())

    def page(self, path: str) -> str:
        """Return the text of a page as an operator sees it."""
        return unescape(self._get(OPERATOR, path).text)

    def log(self) -> Log:
        return Log.read(self.folder / "service.db")

    def _get(self, who: str, path: str) -> Any:
        asked = self._asking.submit(self.clients[who].get, path, headers={"Accept": "*/*"})
        while not asked.done():
            self.analyst.turn()
        return asked.result().raise_for_status()

    def close(self) -> None:
        self._asking.shutdown()
        self.app.state.changes.close()
        self.store.close()


class Follower:
    """The judge's own reader of a service's log."""

    def __init__(self, store: Store, bundles: BundleStore):
        self.store, self.account = store, Account()
        self.state = State(bundles.find)
        self._left: list[tuple[int, str]] = []

    def follow(self, upto: int | None = None) -> None:
        """Read the log further, up to event `upto`; None: to its end."""
        gone = (Kind.ENDED, Kind.LOST, Kind.NOT_STARTED, Kind.PROFILED)
        for event in self.store.read(self.state.seen):
            if upto is not None and event.seq > upto:
                return
            if event.kind in gone:
                self._left.append((event.seq, event.job_id))
            decisions = self.state.apply(event)
            if event.kind is Kind.DECIDED:
                covered = event.body["upto"]
                for seq, job_id in self._left:
                    if seq <= covered:
                        self.account.left(job_id)
                self._left = [(seq, job_id) for seq, job_id in self._left if seq > covered]
                self.account.decided(decisions, self.state.now)


@contextmanager
def living() -> Iterator[Service]:
    with tempfile.TemporaryDirectory() as folder:
        service = Service(Path(folder))
        try:
            yield service
        finally:
            service.close()


def audit(wanted: int, seed: int) -> Found:
    """Run a service, and judge explanations of `wanted` waiting jobs. Return what was found."""
    with living() as service:
        return _Life(service, wanted, seed).run()


class _Life:
    """Plays days of a service, and judges its answers."""

    def __init__(self, service: Service, wanted: int, seed: int):
        self.service, self.wanted, self.seed = service, wanted, seed
        self.follower = Follower(service.store, service.decider.bundle_store)
        self.found = Found("live-service")
        self.coming = plan(max(60, 4 * wanted), seed)
        self.every_s = self.coming[-1].after_s / max(1, wanted)
        self.look_at, self.drain_at = 0.1 * self.coming[-1].after_s, DRAIN_S
        self.drained: int | None = None

    def run(self) -> Found:
        service = self.service
        for sent in self.coming:
            self._until(sent.after_s)
            service.submit(sent)
            service.decider.turn(0.0)
            service.analyst.turn()
            passed_s = service.world.now() - service.start
            if passed_s >= self.drain_at:
                self._drain(passed_s)
            if passed_s >= self.look_at:
                self._look()
                self.look_at = passed_s + self.every_s
            if len(self.found.waits) >= self.wanted:
                break
        return self.found

    def _until(self, after_s: float) -> None:
        """Let simulated time pass until `after_s` seconds from the start, and make every decision
        that is due.
        """
        service = self.service
        while (left_s := service.start + after_s - service.world.now()) > 1e-3:
            wake = service.decider.state.wake_at
            if wake is not None:
                left_s = min(left_s, max(0.001, wake - service.world.now()))
            service.decider.turn(left_s)

    def _drain(self, passed_s: float) -> None:
        self.drain_at = passed_s + DRAIN_S
        if self.drained is not None:
            self.service.set_node(self.drained, True)
        nodes = range(sum(VCS.values()))
        self.drained = Random(f"{self.seed}/{passed_s}").choice(nodes)
        self.service.set_node(self.drained, False)
        self.service.decider.turn(0.0)

    def _look(self) -> None:
        self.follower.follow()
        core = self.follower.state.core
        waiting = [job_id for job_id in core.jobs if job_id not in core.cluster.runs]
        random = Random(f"{self.seed}/{len(self.found.waits)}")
        for job_id in random.sample(waiting, min(2, len(waiting))):
            self._judge(self.asked(job_id))

    def asked(self, job_id: str) -> Asked:
        """Ask about a waiting job. Return the question with the answers of the API, of its pages
        and of the command line. Raise RuntimeError if the analyst did not analyse the job.
        """
        service, core = self.service, self.follower.state.core
        service.analyst.turn()
        service.analyst.refresh()  # as it would have been, had this clock not leapt
        log, at = service.log(), service.world.now()
        told = service.explain(OPERATOR, job_id)
        if not told["analysis"] or told["analysis"]["unavailable"]:
            raise RuntimeError(f"{job_id} was not analysed: {told['analysis']}")
        told = with_words(told)
        printed = with_words(service.explain(OPERATOR, job_id))
        now, moment = service.world.now(), log.until(log.head)
        begun = Random(f"{self.seed}/{core.jobs[job_id].seq}").choice(moment.begun() or [""])
        return Asked(
            job_id,
            at,
            now,
            told,
            printed,
            lines(told, now, "--full"),
            service.page(f"/jobs/{job_id}"),
            service.page(f"/jobs/{job_id}/blockers"),
            moment,
            core,
            begun=service.plain(OPERATOR, begun) if begun else None,
        )

    def _judge(self, asked: Asked) -> None:
        found, job_id = self.found, asked.job_id
        own = self.service.explain(asked.moment.asked[job_id]["owner"], job_id)
        found.texts.append(lines(own, asked.answered_at))
        judge = Judge(asked.core, self.follower.account, self.seed, start=self.service.start)
        at = asked.analysis["at"]
        found.waits.append((job_id, at, judge.verdict(asked.analysis, job_id, at)))
        found.said.append(judged(asked))
        sure = [one for one in asked.analysis["suggestions"] if one["starts_now"]]
        found.asked += 1
        found.shown += len(sure)
        found.other += any("gpus" not in one["changes"] for one in sure)
        wrong = found.said[-1]["helps"]
        found.true += len(sure) - bool(wrong)
        found.untrue += [f"{job_id} {wrong}"] if wrong else []
