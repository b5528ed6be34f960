"""Compares Pellucid's answers about every waiting job, at every poll of generated sites on real
daemons, with what Slurm's commands print (`judge`). Time is compressed: a second of the run stands
for a minute.
"""

from __future__ import annotations

import os
import pickle
import pwd
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import structlog

from benchmarks.slurm import accounting, judge
from benchmarks.slurm.cluster import SlurmCluster
from benchmarks.slurm.generated import Generated, Order, generate
from benchmarks.slurm.judge import Facts
from benchmarks.slurm.kept import MARK, PAST, Kept, marked, refused, refused_second
from benchmarks.slurm.recording import SACCT, SITE
from benchmarks.slurm.shrink import fewest
from benchmarks.slurm.workload import USERS
from features.clock import Clock
from scheduler.assembly import CoreSpec
from scheduler.explain.render import first_words
from scheduler.service.log.header import FOLLOWED, LogHeader, establish
from scheduler.service.log.store.dossiers import explained
from scheduler.service.log.store.reads import Reads, VisibleQueries
from scheduler.service.log.store.schema import prepare
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.visibility import Role, Viewer
from scheduler.slurm.follow import follower
from scheduler.slurm.follow.follower import Follower, Following
from scheduler.slurm.look import Direct
from scheduler.slurm.read.client import Slurm, SlurmError
from scheduler.slurm.read.shape import Shape
from scheduler.slurm.read.table import Table

PART = "PartitionName"
LOOKS, LOOK_S = 8, 8.0
SETTLED_S = 8.0  # after the first submissions, until slurmctld has looked at them
REST = follower.REST / 60.0
WATCHED_S = 150.0  # after the last look, until forecasts have come true or not
PAST_S = 7200.0  # before the first look, in which jobs ran that accounting knows
ADVICE, ASKED, STARTS_S = 6, 4, 45.0  # changes that are made, of so many jobs each
LOST_AT = 3  # the look after which a node is gone
BUSY = "Requested nodes are busy"  # no refusal: so are licences that others have
NOT_THERE = ("node configuration is not available", "not in partition", "excluded", "Invalid node")
# what has no start, and is told so
STOPPED = (
    "Held", "Limit", "QOS", "Assoc", "NeverSatisfied", "PartitionDown", "Invalid", "Allowed",
    "permitted",
)  # fmt: skip
WHERE = ("--gpus", "--gres", "--gpus-per-node", "--gpus-per-task")
# change not where a job could run
NEITHER = ("--hold", "--dependency", "--array", "--begin", "--reservation", "--deadline")


@dataclass
class Found:
    """What the judging of sites found: counts by name, lines about faults, and first forecasts."""

    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    promises: list[judge.Promise] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def fault(self, where: str, line: str) -> None:
        self.counts[f"faults of {line.partition(':')[0]}"] += 1
        self.faults.append(f"{where}: {line}")

    def replayed(self, what: str, seed: int, why_not: Sequence[str]) -> None:
        """Count a replay of a site's own `sacct`. It is believed if `why_not`, the reasons against
        it, is empty; otherwise the reasons are recorded.
        """
        self.counts.update({f"{what}s": 1, f"{what}s believed": int(not why_not)})
        self.refused += [f"seed {seed} {what}: {why}" for why in why_not]

    def told(self) -> dict[str, Any]:
        """Return everything that was found, ready for JSON."""
        first = judge.promised(self.promises)
        counts = dict(sorted(self.counts.items()))
        return {**counts, "first": first, "refused": self.refused, "faults": self.faults}

    def missed(self) -> list[str]:
        """Return one line for each aim that the counts miss."""
        aims = (
            ("looks that keep the four rules", "kept", "looks", 1.0),
            ("reasons that are Slurm's", "words", "looks", 0.97),
            ("terms of priorities that are sprio's", "termed", "terms", 1.0),
            ("answers alike without a service", "same", "looks", 0.95),
            ("offers that are allowed and sooner", "sooner", "offers", 1.0),
            ("partitions that eta has as Slurm does", "right", "etas", 0.99),
            ("changes that Slurm takes", "taken", "offered", 0.95),
            ("jobs that start at once as was said", "started", "taken", 0.9),
        )
        n = self.counts
        found = [f"{what}: {n[a]} of {n[b]}" for what, a, b, share in aims if n[a] < share * n[b]]
        return [*found, *([f"looks lost: {n['lost']}"] if n["lost"] else [])]


_PATH = os.environ["PATH"]


def use(release: str) -> None:
    """Put the daemons of a Slurm release first in PATH: this host's own, or those that `install.sh`
    put into a folder.
    """
    os.environ["PATH"] = _PATH
    if shutil.which("slurmctld"):
        own = subprocess.run(["slurmctld", "-V"], capture_output=True, text=True, check=True)
        if f" {release}." in own.stdout:
            return
    if subprocess.run([Path(__file__).with_name("install.sh"), release], check=False).returncode:
        raise SystemExit(2)  # it has said why
    cache = os.environ.get("XDG_CACHE_HOME") or "/var/cache"
    folder = Path(cache) / "pellucid" / f"slurm-{release}" / "pellucid-bin"
    os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"


def site(
    seed: int,
    found: Found,
    tell: Callable[[str], None],
    keep: Path | None = None,
    *,
    again: Path | None = None,
    places: Sequence[int] | None = None,
    kind: str = "",
) -> None:
    """Start the site of a seed, make its submissions, poll, and judge every answer. Results are
    added to `found`.

    Args:
        tell: called with each line of progress.
        keep: folder in which to store what the site printed; None: nothing is stored.
        again: folder where an earlier run of this site was stored; its submissions count as run a
            second time now. None: there is none.
        places: indices of the submissions to make; None: all.
        kind: stop as soon as a fault of this kind is found, and do not wait for forecasts to come
            true; "": run to the end.
    """
    made = generate(seed)
    with SlurmCluster(accounting=True, own=made.own) as slurm:
        slurm.account(*made.accounting)
        accounting.remember(slurm.folder, slurm.name, _past(made))
        if made.weighed:
            slurm.shared(USERS)
        run = _Run(slurm, made, found, tell)
        run.all(range(len(made.orders)) if places is None else places, kind)
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        (keep / f"site{seed}.pickle").write_bytes(pickle.dumps(run.kept))
    if kind:
        return
    found.replayed("replay", seed, refused(run.kept))
    if again is not None:
        before = pickle.loads((again / f"site{seed}.pickle").read_bytes())
        found.replayed("second run", seed, refused_second(before, run.kept))


def shrink(seed: int, kind: str, tell: Callable[[str], None]) -> dict[str, Any]:
    """Return the fewest submissions of a seed's site with which a fault of this kind is still
    found, and the first such fault. A kind (`node`, `word`) is the first word of a fault's line.
    """
    made, last = generate(seed), ""

    def fails(places: Sequence[int]) -> bool:
        nonlocal last
        found = Found()
        site(seed, found, lambda _: None, places=places, kind=kind)
        lines = [one for one in found.faults if f": {kind}:" in one]
        last = lines[0] if lines else last
        tell(f"{len(places)} submissions: {lines[:1] or 'no such fault'}")
        return bool(lines)

    try:
        kept = fewest(range(len(made.orders)), fails)
    except ValueError as none:
        return {"fault": str(none), "submissions": []}
    return {"fault": last, "submissions": [" ".join(made.orders[n].command()) for n in kept]}


def _past(made: Generated) -> Iterator[dict[str, str | int]]:
    """Yield rows of slurmdbd's table of jobs, as if the past jobs had run one after the other."""
    now = time.time()
    for number, order in enumerate(made.past):
        options = dict(one.partition("=")[::2] for one in order.options)
        counts = (options[name].rpartition(":")[2] for name in WHERE if name in options)
        gpus = int(next(counts, "0")) * int(options.get("--nodes", 1))
        start = int(now - PAST_S + number * (PAST_S - 1800.0) / len(made.past))
        yield {
            "user": order.user,
            "job_name": "wrap",
            "id_job": PAST + number,
            "state": 3,
            "id_user": pwd.getpwnam(order.user).pw_uid,
            "id_group": 0,
            "nodelist": "n1",
            "partition": options.get("--partition", "main").partition(",")[0],
            "nodes_alloc": 1,
            "cpus_req": 1,
            "priority": 1,
            "timelimit": options["--time"],
            "time_submit": start - 30,
            "time_eligible": start - 30,
            "time_start": start,
            "time_end": int(start + order.runs_s),
            "tres_alloc": f"1=1,4=1,1001={gpus}",
            "tres_req": f"1=1,4=1,1001={gpus}",
        }


class OneLook(Slurm):
    """A client of Slurm's commands that runs each command once in a poll, and gives everybody who
    asks during that poll the same output.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        super().__init__(environment)
        self.printed: dict[tuple[str, ...], str] = {}

    def _run(self, command: Sequence[str], patience_s: float) -> str:
        key, mark = marked(command)
        if key not in self.printed:
            printed = super()._run(command, patience_s)
            self.printed[key] = printed.replace(mark, MARK) if mark else printed
        return self.printed[key].replace(MARK, mark)


def follow(slurm: Slurm, store: Store | None, clock: Clock | None = None) -> Follower:
    """Return a follower of a site (the part that reads Slurm), set for compressed time."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    follower.NODES_EVERY, follower.REST = 1, REST
    shape = Shape.followed(slurm.nodes())
    spec, now = CoreSpec.of(shape.spec, "slurm"), (clock or Clock()).now()
    header = LogHeader(spec, now, backend=FOLLOWED, names=shape.names)
    made = Follower(header, shape, slurm, store, Following(table=Table(slurm)), clock=clock)
    made.every_s = LOOK_S
    return made


class _Run:
    def __init__(
        self, slurm: SlurmCluster, made: Generated, found: Found, tell: Callable[[str], None]
    ) -> None:
        self.slurm, self.made, self.tell, self.found = slurm, made, tell, found
        self.client = OneLook(slurm.environment)
        self.ids: dict[int, str] = {}  # of orders that Slurm took, by place
        self.of: dict[str, Order] = {}  # by id of the job or array
        self.chance = random.Random(made.seed)
        self.tested: dict[tuple[str, ...], str] = {}
        self.first: dict[str, tuple[float, dict[str, Any]]] = {}  # forecasts of jobs
        self.kept = Kept(made.seed)
        store = Store(f"sqlite:///{slurm.folder}/pellucid.db")
        prepare(store)
        self.reads = Reads(store.engine)
        self.follower = follow(self.client, store)
        establish(store, self.follower.header)
        assert self.follower.take_over("benchmark", 3600.0)
        self.kept.looks.append((time.time(), self.client.printed))

    def all(self, places: Sequence[int], kind: str) -> None:
        self.empty()
        for words in self.made.settings:
            self.slurm.run("scontrol", *words.split(), check=False)  # two may overlap
        began, left = time.time(), [(place, self.made.orders[place]) for place in places]
        for look in range(LOOKS):
            while left and time.time() >= began + left[0][1].at:
                self.submit(*left.pop(0))
            time.sleep(max(0.0, began + SETTLED_S + look * LOOK_S - time.time()))
            if look == LOST_AT and self.made.lost_node:
                self.slurm.kill_node(self.made.lost_node)
            self.look(look)
            if kind and self.found.counts[f"faults of {kind}"]:
                return
        if kind:
            return
        time.sleep(WATCHED_S)
        facts = self.facts()
        self.keep(facts)
        kept = self.kept
        kept.jobs, kept.at, kept.ids = facts.by_id, facts.at, self.ids
        kept.sacct = self.slurm.run(*SACCT).stdout
        kept.site = "\n".join(self.slurm.run(*words).stdout for words in SITE)
        kept.conf = (self.slurm.folder / "slurm.conf").read_text()
        self.follow_advice(facts)

    def keep(self, facts: Facts) -> None:
        """Record, for each job that had a forecast, when the job began, or that it had not begun by
        now.
        """
        for job_id, (at, made) in self.first.items():
            row = facts.by_id.get(job_id)
            if row is None or row["JobState"] == "CANCELLED":
                continue
            start = None if row["JobState"] == "PENDING" else float(row["StartTime"])
            one = judge.Promise(at, made["start_p50"], made["start_p90"], start, facts.at)
            self.found.promises.append(one)

    def empty(self) -> None:
        """Ask Slurm, while the cluster is empty, which nodes and partitions it accepts for each
        submission. Record the answers.
        """
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
            judge.terms_of(self.slurm.run("sprio", "-h", "-o", judge.SPRIO, check=False).stdout),
        )

    def look(self, number: int) -> None:
        before, user = self.facts(), self.before[number].user if self.before else "root"
        try:
            self.client.printed = {}
            self.kept.looks.append((time.time(), self.client.printed))
            at = self.follower.look().now
            direct = Direct(self.client, user, Clock.by(lambda: at))
            direct.queue(everybody=True)  # so that all are forecast at once
        except Exception as error:
            self.found.counts["lost"] += 1
            self.found.fault(self.where(number), f"lost: {type(error).__name__} {error}")
            return
        now = time.time()
        after = self.facts()
        lost = [j for j in after.by_id if _whole(j) not in self.of]  # sbatch had no answer in time
        for job_id in lost:
            del after.by_id[job_id]
        for job_id, row in after.by_id.items():
            was = before.by_id.get(job_id, {})
            same = all(was.get(name) == row[name] for name in ("JobState", "Reason"))
            if row["JobState"] == "PENDING" and same and self.settled(job_id, row["Reason"]):
                self.judge(number, job_id, now, (before, after), direct)
        self.others(number, direct, after)
        self.tell(f"{self.where(number)}: {len(after.by_id)} jobs, {dict(self.found.counts)}")

    def settled(self, job_id: str, reason: str) -> bool:
        """Return whether Slurm gave the same reason for a job before, during and after the poll.
        Some reasons change with every pass (scheduling round) of Slurm.
        """
        read = [text for words, text in self.client.printed.items() if {"all", "-O"} <= set(words)]
        lines = [line.replace(" ", "_") for text in read for line in text.splitlines()]
        told = [line for line in lines if _whole(line.partition("|")[0]) == _whole(job_id)]
        return not told or any(f"|{reason.partition(',')[0]}" in line for line in told)

    def judge(
        self, number: int, job_id: str, now: float, at: tuple[Facts, Facts], direct: Direct
    ) -> None:
        before, after = at
        found, where = self.found, self.where(number, job_id)
        found.counts["looks"] += 1
        view = self.reads.seen_by(Viewer(self.of_job(job_id).user, Role.SUBMITTER))
        try:
            answer = asdict(explained(view, job_id, now))
        except Exception as error:
            found.fault(where, f"no answer: {type(error).__name__} {error}")
            return
        broken = judge.faults(answer, replace(before, at=now))
        broken = [one for one in judge.faults(answer, replace(after, at=now)) if one in broken]
        found.counts["kept"] += not broken
        for one in broken:
            found.fault(where, one)
        word, said = after.word(job_id), answer["slurm"]["code"] if answer["slurm"] else ""
        alike = said.replace(" ", "_") == word
        alike = alike or (word.startswith("Nodes_required") and said == "Resources")
        found.counts["words"] += alike
        if not alike:
            found.fault(where, f"word: Slurm {word}, said {said or 'nothing'}")
        self.termed(where, job_id, answer, at)
        forecast = answer["forecast"] or {}
        if forecast.get("start_p50") is not None:
            self.first.setdefault(job_id, (now, forecast))
        stopped = any(one in word for one in STOPPED)
        if forecast.get("start_p50") is None and not (stopped or forecast.get("why_not")):
            found.counts["unforeseen"] += 1
            found.fault(where, f"unforeseen: {word}, {forecast.get('why_not')}")
        self.compare(where, job_id, view, direct)

    def termed(
        self, where: str, job_id: str, answer: dict[str, Any], at: tuple[Facts, Facts]
    ) -> None:
        """Check that the terms of a priority in an answer are those that `sprio` prints, unless the
        priorities changed during the poll.
        """
        was, known = (one.terms.get(one.by_id[job_id]["JobId"]) for one in at)
        if known is not None and was == known and answer["slurm"] and answer["slurm"]["terms"]:
            broken = judge.unlike(answer, known)
            self.found.counts.update(terms=1, termed=int(not broken))
            for one in broken:
                self.found.fault(where, one)

    def compare(self, where: str, job_id: str, view: VisibleQueries, direct: Direct) -> None:
        """Check that `pellucid why` without a service gives the same reason as the service at the
        same time. Record differences as faults.
        """
        try:
            answer, other = explained(view, job_id, direct.now), direct.why(job_id)
        except Exception as error:
            self.found.fault(where, f"direct: {type(error).__name__} {error}")
            return
        alike = first_words(other) == first_words(answer)
        self.found.counts["same"] += alike
        if not alike:
            self.found.fault(where, f"direct: {first_words(other)!r} for {first_words(answer)!r}")

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
            found.counts.update(offers=1, sooner=int(not broken))
            for one in broken:
                found.fault(where, one)
        if self.before:
            self.eta(self.where(number), self.before[number], direct)

    def follow_advice(self, facts: Facts) -> None:
        """Make suggested changes that should start a job at once, and check that it starts. A fresh
        poll is made before each change.
        """
        waiting = [j for j, row in facts.by_id.items() if row["JobState"] == "PENDING"]
        self.chance.shuffle(waiting)
        for _ in range(ADVICE):
            self.client.printed = {}
            direct = Direct(self.client, "root")
            offered = ((job_id, self.at_once(direct, job_id)) for job_id in waiting[:ASKED])
            job_id, command = next((one for one in offered if one[1]), ("", ""))
            waiting = waiting[waiting.index(job_id) + 1 :] if job_id else waiting[ASKED:]
            if not command:
                continue
            where, user = self.where(LOOKS, job_id), self.of_job(job_id).user
            done = self.slurm.run(*command.split(), user=user, check=False)
            self.found.counts.update(offered=1, taken=int(not done.returncode))
            if done.returncode:
                self.found.fault(where, f"refused: {command}: {' '.join(done.stderr.split())}")
                continue
            started = self.starts(job_id)
            self.found.counts["started"] += started
            if not started:
                self.found.fault(where, f"advice: {command}: {self.facts().word(job_id)}")

    @staticmethod
    def at_once(direct: Direct, job_id: str) -> str:
        """Return a command that is offered with the promise that the job then starts at once; "":
        there is none.
        """
        try:
            tried = direct.sooner(job_id).tried
        except KeyError:  # it runs by now, or is gone
            return ""
        return next((one.command for one in tried if not one.reason), "")

    def starts(self, job_id: str) -> bool:
        """Wait for a job to start, for a time that stands for three quarters of an hour. Return
        whether it did.
        """
        over = time.time() + STARTS_S
        while time.time() < over:
            row = self.facts().by_id.get(job_id)
            if row is None or row["JobState"] != "PENDING":
                return True
            time.sleep(1.0)
        return False

    def eta(self, where: str, order: Order, direct: Direct) -> None:
        if any(one.startswith("--constraint=[") for one in order.options):
            return  # --test-only counts no nodes by kind, nor has them of one; sbatch does
        options = [one for one in order.options if one.partition("=")[0] not in NEITHER]
        try:
            answer = asdict(direct.eta(options))
        except SlurmError as error:
            answer = {"closed": [{"partition": "", "why": str(error)}]}
        named = [one["partition"] for key in ("tried", "closed") for one in answer.get(key, ())]
        refused = {
            name: self.test(order, *([f"--partition={name}"] if name else [])) for name in named
        }
        # of a named node and more it finds none, whatever is free; submitted, such a job runs
        if any(one.startswith("--nodelist") for one in options):
            refused = {name: why for name, why in refused.items() if NOT_THERE[0] not in why}
        broken = judge.estimated(options, answer, refused, self.hidden)
        for one in broken:
            self.found.fault(where, f"{one} ({order.user})")
        self.found.counts.update(etas=len(refused), right=len(refused) - len(broken))

    # --- what Slurm says when asked --------------------------------------------------------------

    def of_job(self, job_id: str) -> Order:
        return self.of[_whole(job_id)]

    def where(self, number: int, job_id: str = "") -> str:
        of = f" job {job_id} ({' '.join(self.of_job(job_id).options)})" if job_id else ""
        return f"seed {self.made.seed} look {number}{of}"

    def test(self, order: Order, *more: str, without: tuple[str, ...] = NEITHER) -> str:
        """Return Slurm's refusal of a submission by `sbatch --test-only`; "": Slurm accepts it."""
        options = [one for one in order.options if one.partition("=")[0] not in without]
        tried = replace(order, options=("--test-only", *options, *more))
        command = tried.command()
        key = (order.user, *command)
        if key not in self.tested:
            done = self.slurm.run(*command, user=order.user, check=False)
            against = done.stderr.strip() if done.returncode else ""
            self.tested[key] = "" if BUSY in against else against
        return self.tested[key]

    def on(self, order: Order, node: str) -> str:
        """Return Slurm's refusal of a submission on one node; "": accepted. If the submission may
        take several nodes, only the part for one node is tried.
        """
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


def _whole(job_id: str) -> str:
    """Return the id of the job or array that a job, task or component belongs to."""
    return job_id.partition("_")[0].partition("+")[0]


def _plain(order: Order) -> bool:
    return ":" not in order.options
