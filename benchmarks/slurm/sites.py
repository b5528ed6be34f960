"""Generated sites on real daemons: what Pellucid answers about every waiting job at every look,
against what Slurm says (`judge`). A second stands for a minute."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import structlog

from benchmarks.slurm import judge
from benchmarks.slurm.cluster import SlurmCluster
from benchmarks.slurm.generated import Generated, Order, generate
from benchmarks.slurm.judge import Facts
from benchmarks.slurm.processes import until
from features.clock import Clock
from scheduler.assembly import CoreSpec
from scheduler.backends.slurm.client import Slurm, SlurmError
from scheduler.backends.slurm.shape import Shape
from scheduler.backends.slurm.table import Table
from scheduler.service.api.explanation import explain
from scheduler.service.direct import Direct
from scheduler.service.follow import follower
from scheduler.service.follow.follower import Follower, Following
from scheduler.service.log.header import FOLLOWED, LogHeader, establish
from scheduler.service.log.store.reads import Reads
from scheduler.service.log.store.schema import prepare
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.visibility import Role, Viewer

_MARK = re.compile(r"\b[0-9a-f]{16}\b")  # of a table
PART = "PartitionName"
LOOKS, LOOK_S = 8, 8.0
SETTLED_S = 8.0  # after the first submissions, until slurmctld has looked at them
SCALE = 60.0
LOST_AT = 3  # the look after which a node is gone
NOT_THERE = ("node configuration is not available", "not in partition", "excluded", "Invalid node")
# what has no start, and is told so
STOPPED = (
    "Held",
    "Limit",
    "QOS",
    "Assoc",
    "NeverSatisfied",
    "PartitionDown",
    "Invalid",
    "Allowed",
    "permitted",
)
WHERE = ("--gpus", "--gres", "--gpus-per-node", "--gpus-per-task")
# change not where a job could run
NEITHER = ("--hold", "--dependency", "--array", "--begin", "--reservation", "--deadline")


@dataclass
class Found:
    """What was counted on one site, or on several.

    Attributes:
        looks: at waiting jobs. kept: that broke no rule. lost: looks that an exception ended.
        words: that have Slurm's reason. same: of `both`, that one look without a service answers
            alike. unforeseen: without a forecast, though nothing stops them.
        offers, etas: asked, and with no fault.
        faults: each with its seed and job; `kinds`: how many by rule.
    """

    looks: int = 0
    kept: int = 0
    lost: int = 0
    words: int = 0
    both: int = 0
    same: int = 0
    unforeseen: int = 0
    offers: list[int] = field(default_factory=lambda: [0, 0])
    etas: list[int] = field(default_factory=lambda: [0, 0])
    kinds: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def join(self, other: Found) -> None:
        """Count these, too."""
        for name in ("looks", "kept", "lost", "words", "both", "same", "unforeseen"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.offers = [a + b for a, b in zip(self.offers, other.offers, strict=True)]
        self.etas = [a + b for a, b in zip(self.etas, other.etas, strict=True)]
        self.kinds = dict(Counter(self.kinds) + Counter(other.kinds))
        self.faults += other.faults

    def fault(self, where: str, line: str) -> None:
        kind = line.partition(":")[0]
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        self.faults.append(f"{where}: {line}")

    def missed(self) -> list[str]:
        """Which aims are missed."""
        aims = (
            ("looks that keep the four rules", self.kept, self.looks, 1.0),
            ("reasons that are Slurm's", self.words, self.looks, 0.97),
            ("answers alike without a service", self.same, self.both, 0.95),
            ("offers that are allowed and sooner", self.offers[1], self.offers[0], 1.0),
            ("partitions that eta has as Slurm does", self.etas[1], self.etas[0], 0.99),
        )
        found = [f"{what}: {a} of {n}" for what, a, n, share in aims if a < share * n]
        return [*found, *([f"looks lost: {self.lost}"] if self.lost else [])]


def use(release: str) -> None:
    """The daemons of a release, in a folder (`install.sh`), are first in PATH."""
    subprocess.run([Path(__file__).with_name("install.sh"), release], check=True)
    cache = os.environ.get("XDG_CACHE_HOME") or "/var/cache"
    folder = Path(cache) / "pellucid" / f"slurm-{release}" / "pellucid-bin"
    os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"


def site(seed: int, tell: Callable[[str], None]) -> Found:
    """Bring the site of a seed up, submit, look, judge."""
    made = generate(seed)
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    follower.NODES_EVERY, follower.REST = 1, follower.REST / SCALE
    with SlurmCluster(accounting=True, own=made.own) as slurm:
        for words in made.accounting:
            slurm.run("sacctmgr", "-i", *words.split())
        return _Run(slurm, made, tell).all()


class OneLook(Slurm):
    """A Slurm that prints the same to everybody who asks during one look."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        super().__init__(environment)
        self.printed: dict[tuple[str, ...], str] = {}

    def _run(self, command: Sequence[str], patience_s: float) -> str:
        marks = [*dict.fromkeys(_MARK.findall(" ".join(command))), ""]
        key = tuple(one.replace(marks[0], "<mark>") if marks[0] else one for one in command)
        if key not in self.printed:
            said = super()._run(command, patience_s)
            self.printed[key] = said.replace(marks[0], "<mark>") if marks[0] else said
        return self.printed[key].replace("<mark>", marks[0]) if marks[0] else self.printed[key]


class _Run:
    def __init__(self, slurm: SlurmCluster, made: Generated, tell: Callable[[str], None]) -> None:
        self.slurm, self.made, self.tell, self.found = slurm, made, tell, Found()
        self.client = OneLook(slurm.environment)
        self.ids: dict[int, str] = {}  # of orders that Slurm took, by place
        self.of: dict[str, Order] = {}  # by id of the job or array
        self.chance = random.Random(made.seed)
        self.tested: dict[tuple[str, ...], str] = {}
        store = Store(f"sqlite:///{slurm.folder}/pellucid.db")
        prepare(store)
        shape = Shape.followed(self.client.nodes())
        header = LogHeader(
            CoreSpec.of(shape.spec, "slurm"), time.time(), backend=FOLLOWED, names=shape.names
        )
        establish(store, header)
        self.reads = Reads(store.engine)
        asked = Following(table=Table(self.client))
        self.follower = Follower(header, shape, self.client, store, asked)
        assert self.follower.take_over("benchmark", 3600.0)

    def all(self) -> Found:
        self.empty()
        for words in self.made.settings:
            self.slurm.run("scontrol", *words.split(), check=False)  # two may overlap
        began, left = time.time(), list(enumerate(self.made.orders))
        for look in range(LOOKS):
            while left and time.time() >= began + left[0][1].at:
                self.submit(*left.pop(0))
            time.sleep(max(0.0, began + SETTLED_S + look * LOOK_S - time.time()))
            if look == LOST_AT and self.made.lost_node:
                self.slurm.kill_node(self.made.lost_node)
            self.look(look)
        return self.found

    def empty(self) -> None:
        """What Slurm says while nothing is in any job's way."""
        asks = ("sbatch", "--test-only", "--chdir=/tmp", "--wrap=true")
        for user in {one.user for one in self.made.orders}:
            until(lambda: not self.slurm.run(*asks, user=user, check=False).returncode, user)  # noqa: B023
        parts = judge.records(self.slurm.run("scontrol", "-a", "show", "part", "-o").stdout, PART)
        self.hidden = frozenset(name for name, row in parts.items() if row["Hidden"] == "YES")
        plain = [one for one in self.made.orders if _plain(one)]
        for order in plain:
            for node in self.slurm.nodes:
                self.on(order, node)
        self.before = self.chance.sample(plain, LOOKS) if self.made.enforced else []
        for order in self.before:
            for name in parts:
                self.test(order, f"--partition={name}")
            self.test(order)

    def submit(self, place: int, order: Order) -> None:
        after = self.ids.get(order.after, "1") if order.after is not None else "0"
        done = self.slurm.run(*order.command(after=after), user=order.user, check=False)
        if not done.returncode:
            self.ids[place] = done.stdout.strip().partition(";")[0]
            self.of[self.ids[place]] = order

    # --- one look -------------------------------------------------------------------------------

    def facts(self) -> Facts:
        def show(what: str, first: str) -> judge.Rows:
            environment = {"SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}
            words = ("scontrol", "-a", "show", what, "-o")
            return judge.records(self.slurm.run(*words, environment=environment).stdout, first)

        return Facts(
            time.time(),
            show("job", "JobId"),
            show("node", "NodeName"),
            show("reservation", "ReservationName"),
            self.hidden,
            self.can,
            self.asked,
        )

    def look(self, number: int) -> None:
        before, user = self.facts(), self.before[number].user if self.before else "root"
        try:
            self.client.printed.clear()
            at = self.follower.look().now
            direct = Direct(self.client, user, Clock.by(lambda: at))
            direct.queue(everybody=True)  # so that all are forecast at once
        except Exception as error:
            self.found.lost += 1
            self.found.fault(self.where(number), f"lost: {type(error).__name__} {error}")
            return
        now = time.time()
        after = self.facts()
        for job_id, row in after.by_id.items():
            was = before.by_id.get(job_id, {})
            if row["JobState"] == "PENDING" and all(
                was.get(name) == row[name] for name in ("JobState", "Reason")
            ):
                self.judge(number, job_id, now, (before, after), direct)
        self.others(number, direct, after)
        self.tell(f"{self.where(number)}: {len(after.by_id)} jobs, {self.found.kinds}")

    def judge(
        self, number: int, job_id: str, now: float, at: tuple[Facts, Facts], direct: Direct
    ) -> None:
        before, after = at
        found, where = self.found, self.where(number, job_id)
        found.looks += 1
        view = self.reads.seen_by(Viewer(self.of_job(job_id).user, Role.SUBMITTER))
        try:
            answer = asdict(explain(view, job_id, now))
        except Exception as error:
            found.fault(where, f"no answer: {type(error).__name__} {error}")
            return
        broken = judge.faults(answer, replace(before, at=now))
        broken = [one for one in judge.faults(answer, replace(after, at=now)) if one in broken]
        found.kept += not broken
        for one in broken:
            found.fault(where, one)
        word, said = after.word(job_id), answer["slurm"]["code"] if answer["slurm"] else ""
        alike = said.replace(" ", "_") == word
        alike = alike or (word.startswith("Nodes_required") and said == "Resources")
        found.words += alike
        if not alike:
            found.fault(where, f"word: Slurm {word}, said {said or 'nothing'}")
        forecast = answer["forecast"] or {}
        stopped = any(one in word for one in STOPPED)
        if forecast.get("start_p50") is None and not (stopped or forecast.get("why_not")):
            found.unforeseen += 1
            found.fault(where, f"unforeseen: {word}, {forecast.get('why_not')}")
        self.compare(where, job_id, answer, direct)

    def compare(self, where: str, job_id: str, answer: dict[str, Any], direct: Direct) -> None:
        """One look without a service answers alike."""
        self.found.both += 1
        try:
            other = asdict(direct.why(job_id))
        except Exception as error:
            self.found.fault(where, f"direct: {type(error).__name__} {error}")
            return
        alike = other["dominant"] == answer["dominant"]
        self.found.same += alike
        if not alike:
            self.found.fault(where, f"direct: {other['dominant']!r} for {answer['dominant']!r}")

    # --- what it offers, and before submission ----------------------------------------------------

    def others(self, number: int, direct: Direct, facts: Facts) -> None:
        found = self.found
        waiting = [
            job_id
            for job_id, row in facts.by_id.items()
            if row["JobState"] == "PENDING" and row["Reason"] in ("Priority", "Resources")
        ]
        if waiting:
            job_id = self.chance.choice(waiting)
            where = self.where(number, job_id)
            broken = judge.offers(job_id, asdict(direct.sooner(job_id)), facts)
            found.offers = [found.offers[0] + 1, found.offers[1] + (not broken)]
            for one in broken:
                found.fault(where, one)
        if self.before:
            self.eta(self.where(number), self.before[number], direct)

    def eta(self, where: str, order: Order, direct: Direct) -> None:
        options = [one for one in order.options if one.partition("=")[0] not in NEITHER]
        try:
            answer = asdict(direct.eta(options))
        except SlurmError as error:
            answer = {"closed": [{"partition": "", "why": str(error)}]}
        named = [one["partition"] for key in ("tried", "closed") for one in answer.get(key, ())]
        refused = {
            name: self.test(order, *([f"--partition={name}"] if name else [])) for name in named
        }
        broken = judge.estimated(options, answer, refused)
        for one in broken:
            self.found.fault(where, f"{one} ({order.user})")
        asked, right = self.found.etas
        self.found.etas = [asked + len(named), right + len(named) - len(broken)]

    # --- what Slurm says when asked --------------------------------------------------------------

    def of_job(self, job_id: str) -> Order:
        return self.of[job_id.partition("_")[0].partition("+")[0]]

    def where(self, number: int, job_id: str = "") -> str:
        of = f" job {job_id} ({' '.join(self.of_job(job_id).options)})" if job_id else ""
        return f"seed {self.made.seed} look {number}{of}"

    def test(self, order: Order, *more: str, without: tuple[str, ...] = NEITHER) -> str:
        """What `sbatch --test-only` says against a submission; "": nothing."""
        replaced = order.command()[: -len(order.options)]
        options = [one for one in order.options if one.partition("=")[0] not in without]
        command = (*replaced, "--test-only", *options, *more)
        key = (order.user, *command)
        if key not in self.tested:
            done = self.slurm.run(*command, user=order.user, check=False)
            self.tested[key] = done.stderr.strip() if done.returncode else ""
        return self.tested[key]

    def on(self, order: Order, node: str) -> str:
        """What Slurm says against a node; of several, each is to do a part of the job."""
        names = {one.partition("=")[0]: one.partition("=")[2] for one in order.options}
        more, gpus = [f"--nodelist={node}"], names.get("--gpus", "")
        if names.get("--nodes", "1") != "1":
            more += ["--nodes=1", "--ntasks=1"]
        elif gpus and "--nodes" not in names:
            more.append(f"--gpus={':'.join([*gpus.split(':')[:-1], '1'])}")
        return self.test(order, *more)

    def can(self, job_id: str, node: str) -> bool | None:
        order = self.of_job(job_id)
        if not _plain(order):
            return None
        said = self.on(order, node)
        return True if not said else False if any(one in said for one in NOT_THERE) else None

    def asked(self, job_id: str, name: str, value: str) -> str | None:
        order = self.of_job(job_id)
        without: tuple[str, ...] = NEITHER
        if not _plain(order):
            return None
        option = {"timelimit": "time"}.get(name, name)
        if name in ("trespernode", "tresperjob"):
            option, without = ("gres" if name == "trespernode" else "gpus"), (*NEITHER, *WHERE)
            value = value.replace("gres/", "").replace("gres:", "")
            value = value if option == "gres" else value.removeprefix("gpu:")
        said = self.test(order, f"--{option}={value}", without=without)
        return "" if any(one in said for one in NOT_THERE) else said  # not now, perhaps


def _plain(order: Order) -> bool:
    return ":" not in order.options
