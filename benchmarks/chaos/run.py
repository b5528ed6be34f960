"""Plays one run: two instances of a whole service, their users, and faults. The run leaves a
history.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sqlalchemy import create_engine, text

from benchmarks.chaos import between, costs, machine, starting, system
from benchmarks.chaos.disk import Disk, Faults
from benchmarks.chaos.kernel import ACTIVE, Host, Kernel, Process
from benchmarks.chaos.people import Door, Person
from scheduler.assembly import CoreSpec
from scheduler.core.cluster import ClusterSpec
from scheduler.core.settings import ProfilingPartition
from scheduler.service import app as apps
from scheduler.service.decide import supervisor as supervisors
from scheduler.service.decide.begin import begin
from scheduler.service.log.audit import audit
from scheduler.service.log.bundles import BundleStore
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.visibility import Role
from scheduler.service.settings import Settings
from tests import checker

LEASE_S = 3.0
POLICIES = ("pellucid", "pellucid", "lucid", "lucid", "lucid", "fifo-skip", "qssf")
CLUSTER = ClusterSpec({"left": 2, "right": 1}, 4, gpu_type="V100", name="chaos")
PEOPLE = {"ann": Role.SUBMITTER, "bob": Role.SUBMITTER, "olga": Role.OPERATOR}
HANGS_S = 16.0  # a decider that says nothing for so long is killed, by the documentation
WATCHDOG_S = 90.0  # and a supervisor, by systemd: WatchdogSec=60, TimeoutStopSec=30
MOST_WAITING = 6
PARTED = 0.5  # of the runs have a network that fails
DARK = 0.5  # of the runs lose power as the log has what no pass has covered
COMES_S = 10.0  # when a backlog comes
# of a process that ends by itself: nothing that goes wrong outside is the cause of such
SLIPS = tuple(f"{one}Error(" for one in ("Attribute", "Key", "Index", "Name", "Type", "Assertion"))
QUIET_S = 400.0  # after the last fault everything is over within


@dataclass(frozen=True)
class Plan:
    """The parameters of a run.

    Attributes:
        seed: seed of every choice.
        steps: number of hand-overs between threads during which faults happen.
        crash_at: numbers of the crash points (places in the code) at which the process dies.
        freeze_s: if not 0, a process is stopped at these points for so many seconds, and does not
            die.
        power: at these points, the process's host loses power for a while.
        slurm: play two hosts in front of a Slurm, and not one host with GPUs.
        calm: no fault happens but those of `crash_at`.
        backlog: number of jobs that are submitted at once (`benchmarks.chaos.costs`).
    """

    seed: int
    steps: int = 4000
    crash_at: tuple[int, ...] = ()
    freeze_s: float = 0.0
    calm: bool = False
    power: bool = False
    slurm: bool = False
    backlog: int = 0

    def told(self) -> str:
        """Return the command-line options that play the same run again."""
        at = f" --at {','.join(map(str, self.crash_at))}" if self.crash_at else ""
        frozen = f" --freeze {self.freeze_s:g}" if self.freeze_s else ""
        frozen += " --power" if self.power else ""
        frozen += " --slurm" if self.slurm else ""
        frozen += f" --backlog {self.backlog}" if self.backlog else ""
        return f"--seed {self.seed} --steps {self.steps}{at}{frozen}"


@dataclass
class Run:
    """The result of one run.

    Attributes:
        history: requests, their answers, real begins and ends of jobs, and the log of decisions.
        wrong: sentences about what should not have happened, faults of the test itself included.
        points: number of crash points passed.
        seconds: simulated seconds that the run took.
    """

    plan: Plan
    history: list[dict[str, Any]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    points: int = 0
    steps: int = 0
    seconds: float = 0.0
    crashes: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)

    def counts(self) -> dict[str, int]:
        """Return how often each kind of fault or unusual event happened in the run."""
        what = Counter(one["what"] for one in self.history)
        names = {"call": "requests", "final": "jobs", "began": "attempts", "frozen": "pauses",
                 "clock": "clock_steps", "power": "power_cuts",
                 "parted": "partitions", "again": "told_again"}  # fmt: skip
        log = Counter(one["kind"] for one in self.history if one["what"] == "log")
        kinds = {"lease": "takeovers", "rebased": "epochs", "bundle": "champions",
                 "settings_set": "settings_set", "node_added": "nodes_added",
                 "node_changed": "nodes_changed", "node_removed": "nodes_removed"}  # fmt: skip
        counts = {name: log[kind] for kind, name in kinds.items()}
        return counts | {name: what[one] for one, name in names.items()}

    @property
    def digest(self) -> str:
        text = json.dumps(self.history, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class Simulation:
    """Two instances of a service that share one database and one host, in a simulation."""

    app: Any  # that answers requests; its state is that of the process that does

    def __init__(
        self, plan: Plan, folder: Path, url: str, secrets: dict[str, str], champions: list[Path]
    ):
        self.plan, self.url, self.secrets, self.champions = plan, url, secrets, champions
        self.champion = folder / "champion"
        self._installed = False  # other code, by which nothing was decided yet
        self.run = Run(plan)
        self.draw = random.Random(f"scene {plan.seed}")
        self.kernel = Kernel(plan.seed, plan.crash_at, plan.freeze_s)
        self.kernel.on_kill, self.kernel.on_start = self._killed, self._started
        self.kernel.on_freeze = self._frozen
        # when each lease was renewed, by name, term and count
        self.renewed: dict[tuple[str, int, int], float] = {}
        if plan.power:
            self.kernel.on_point = self._power_fails
        self.host, self.elsewhere = Host("host", booted_at=-5000.0), Host("elsewhere")
        self.hosts = [self.host]  # that services run on
        self.healed = system.Event()
        self.faults = Faults(random.Random(f"faults {plan.seed}"), self.note)
        self.disk = Disk(self.kernel, self.faults, database_of(url))
        self.starting = starting.Starting(self.kernel, plan.seed, self.note, calm=plan.calm)
        self.machine = machine.Machine(
            self.kernel, self.host, self.disk, self.note, self.starting.begins
        )
        self.between = between.Between(self.kernel, plan.seed, self.note, calm=plan.calm)
        self.door = Door(self.kernel)
        self.services: dict[str, Process] = {}
        given: dict[str, Any] = {
            "database": url,
            "policy": self.draw.choice(POLICIES),
            "state_dir": folder / "state",
            "bundle": self.champion,
            "bundle_poll_s": 1.0,
            "backend": "local",
            "fake_gpus": True,
            "auth": "on",
            "lease_s": LEASE_S,
            "poll_s": 1.0,
            "export_every": 5,
            "max_waiting": MOST_WAITING,
        }
        self.settings = Settings(**given)
        lent = ProfilingPartition(nodes={"left": 1}, largest_share=1, limit_s=4.0, max_gpus=4)
        assert self.settings.policy is not None
        looks = self.settings.policy == "lucid"  # at each job that does not mind
        partition = lent if looks or self.draw.random() < 0.5 else None
        self.spec = CoreSpec.of(CLUSTER, self.settings.policy, profiling=partition)
        self.names: tuple[str, ...] = ()  # of nodes
        self.parts: dict[int, Any] = {}  # what each API process is made of
        self._turned = "", 0.0
        self.working = 0  # people who have not done everything yet

    # --- the history ------------------------------------------------------------------------

    def note(self, what: str, **said: Any) -> dict[str, Any]:
        one = {"what": what, "at": round(self.kernel.clock, 4), **json.loads(json.dumps(said))}
        self.run.history.append(one)
        return one

    def decides(self, holder: str, term: int) -> None:
        """Note in the history that a decider was at work, at most once a second. `term` is the
        number of its lease.
        """
        if self._turned[0] != holder or self.kernel.clock - self._turned[1] > 1.0:
            self._turned = holder, self.kernel.clock
            self.note("decides", holder=holder, term=term)

    def _started(self, process: Process) -> None:
        self.note("started", process=process.name, role=process.role)

    def _killed(self, process: Process, where: str) -> None:
        slip = process.why.startswith(SLIPS)
        alone = self.plan.calm and not process.cut_off  # nothing made it end
        if process.exit_code == 1 and (alone or slip):
            self.run.wrong.append(f"{process.name} ended by itself: {process.why}")
        if process.role:
            self.note("died", process=process.name, role=process.role, where=where)

    def _frozen(self, process: Process, seconds: float) -> None:
        self.note("frozen", process=process.name, role=process.role, seconds=seconds)

    # --- processes --------------------------------------------------------------------------

    def host_of(self, name: str) -> Host:
        """Return the host on which the service instance `name` runs."""
        return self.host

    def serve(self, name: str) -> None:
        """Start the service instance `name` as its service manager starts `pellucid serve`."""
        process = self.kernel.process(name, self.host_of(name))
        process.role = "supervisor"
        self.services[name] = process
        listening = SimpleNamespace(
            getsockname=lambda: ("127.0.0.1", 8400), close=lambda: None, fileno=lambda: -1
        )

        def live() -> None:
            code = 1
            try:
                begin(self.settings, self.spec, self.names, choice="keep")
                supervisors.Supervisor(
                    self.settings,
                    listening,  # type: ignore[arg-type]
                    self.kernel.cpu_s,
                    lambda _: False,  # nobody waits for a processor here
                ).run()
                code = 0
            finally:
                self.kernel.exits(process, code)

        self.kernel.spawn(process, live)

    def run_api(self, settings: Settings, stopping: Any, _: Any, counts: Any = None) -> None:
        """Replaces the service's API server: requests come through the `Door` and not through
        sockets.
        """
        parts = apps.create_app(settings, counts=counts, pages=False)
        me = self.kernel.me
        self.parts[me.pid] = parts.state
        self.door.open[me.pid] = me, self.app
        me.on_death.append(lambda: self.door.open.pop(me.pid, None) and None)
        while not stopping():
            self.kernel.sleep(0.5)
        self.door.open.pop(me.pid, None)
        parts.state.changes.close()

    # --- a run ------------------------------------------------------------------------------

    def live(self) -> Run:
        """Play the run, from the first start of the services to the audit of the database. Return
        it.
        """
        kernel, plan = self.kernel, self.plan
        system.seed_names(plan.seed)
        outside = kernel.process("outside", self.elsewhere)
        kernel.spawn(outside, self._direct, "director")
        ACTIVE.append(kernel)
        try:
            kernel.run()
        except BaseException as error:
            if not isinstance(error, Exception):
                raise
            self.run.wrong.append(f"the run ended early: {error}")
        finally:
            ACTIVE.pop()
        found = self.run
        found.points, found.steps, found.seconds = kernel.points, kernel.steps, kernel.clock
        found.crashes, found.faults = kernel.crashes, self.faults.happened
        found.faults.update({f"lost {what}": n for what, n in self.disk.unsynced.lost.items()})
        self._read_log()
        found.wrong += checker.check(found.history)
        return found

    def _direct(self) -> None:
        kernel = self.kernel
        self.note(
            "begins",
            nodes=_nodes(),
            lease_s=LEASE_S,
            hangs_s=HANGS_S,
            watchdog_s=WATCHDOG_S,
            most_waiting=MOST_WAITING,
            folds_s=costs.folded_s(self.plan.backlog),
        )
        self.serve("one")
        self.serve("two")
        people = [
            Person(
                self.door,
                self.note,
                name,
                self.secrets[name],
                self.plan.seed,
                operator=role is Role.OPERATOR,
                calm=self.plan.calm,
            )
            for name, role in PEOPLE.items()
        ]
        for person in people:
            self.working += 1
            kernel.spawn(kernel.me, partial(self._work, person), person.name)
        kernel.spawn(kernel.process("nemesis", self.elsewhere), self._spoil)
        network = random.Random(f"network {self.plan.seed}")
        if not self.plan.calm and network.random() < PARTED:
            kernel.spawn(kernel.process("network", self.elsewhere), partial(self._part, network))
        mains = random.Random(f"mains {self.plan.seed}")
        if not self.plan.calm and not self.plan.slurm and mains.random() < DARK:
            kernel.spawn(kernel.process("mains", self.elsewhere), partial(self._darken, mains))
        kernel.wait(lambda: not self.working and self.healed.is_set(), 3000.0)
        if self.working:
            self.run.wrong.append("somebody never got an answer")
        else:
            people[-1].tidy_up(QUIET_S)
        kernel.stop()

    def _work(self, person: Person) -> None:
        try:
            person.live(self.draw.randint(3, 5), 3.0)
        finally:
            self.working -= 1

    # --- what goes wrong --------------------------------------------------------------------

    def _spoil(self) -> None:
        """Cause faults until the run has taken its number of steps. Then repair everything, and
        keep restarting services.
        """
        kernel, draw = self.kernel, random.Random(f"nemesis {self.plan.seed}")
        if not self.plan.calm:
            self.faults.rate = draw.choice([0.0, 0.0, 0.01, 0.05])
        coming = bool(self.plan.backlog)
        while kernel.steps < self.plan.steps and (self.working or kernel.clock < 30.0):
            if coming and kernel.clock > COMES_S:
                coming = False
                store = Store(self.url)
                self.note("backlog", jobs=costs.submitted(store))
                store.close()
            # A service manager does not wait for longer before it starts what has ended.
            kernel.sleep(min(draw.expovariate(1 / 4), 15.0))
            if not self.plan.calm:
                self._one(draw)
            self._restart()
        self.heal()
        while True:
            self._restart()
            kernel.sleep(1.0)

    def heal(self) -> None:
        """Stop causing faults, and undo those that last."""
        self.faults.rate = 0.0
        self.kernel.ambushes.clear()
        self.disk.apart.clear()
        for host in self.hosts:
            host.disk_full = False
        self.note("healed")
        self.healed.set()

    def _any_host(self, draw: random.Random) -> Host:
        return self.hosts[0] if len(self.hosts) == 1 else draw.choice(self.hosts)

    def _one(self, draw: random.Random) -> None:
        there = [p for p in self.kernel.processes.values() if p.role and not p.dead]
        what = draw.choices(
            [
                self._kill,
                self._freeze,
                self._set_clock,
                self._fill_disk,
                self._ask_to_stop,
                self._upgrade,
                self._promote,
                self._lose_power,
                self._lie_in_wait,
            ],
            [10, 6, 2, 2, 2, 1, 3, 1, 6],
        )[0]
        for host in self.hosts:
            host.disk_full = False
        if there:
            what(draw, draw.choice(there))

    def _kill(self, draw: random.Random, process: Process) -> None:
        if process.role == "shim" and draw.random() < 0.8:
            return
        self.kernel.kill(process, f"{process.role}: any moment")

    def _part(self, draw: random.Random) -> None:
        """Now and then, cut a process off from the database for a while. Both keep running."""
        while not self.healed.is_set():
            self.kernel.sleep(draw.expovariate(1 / 20))
            there = [p for p in self.kernel.processes.values() if p.role and not p.dead]
            if there and not self.healed.is_set():
                process, seconds = draw.choice(there), draw.choice([1.0, 5.0, 20.0, 60.0])
                self.disk.apart[process] = self.kernel.clock + seconds
                self.note("parted", process=process.name, seconds=seconds)

    def _lie_in_wait(self, draw: random.Random, _: Process) -> None:
        where = draw.choice(sorted(self.kernel.seen))
        freeze_s = draw.choice([0.0, 0.0, 0.0, 5.0, 12.0, 40.0])
        self.kernel.ambushes[where] = partial(self.kernel.strike, freeze_s=freeze_s)

    def _freeze(self, draw: random.Random, process: Process) -> None:
        self.kernel.freeze(process, draw.choice([0.5, 2.0, 5.0, 12.0, 40.0, 150.0]))

    def _set_clock(self, draw: random.Random, _: Process) -> None:
        host = self._any_host(draw)
        host.wall_s += draw.choice([-3600.0, -30.0, -2.0, 2.0, 30.0, 3600.0])
        self.note("clock", host=host.name, wall_s=host.wall_s)

    def _fill_disk(self, draw: random.Random, _: Process) -> None:
        self._any_host(draw).disk_full = True
        self.note("disk full")

    def _darken(self, draw: random.Random) -> None:
        """Now and then, cut the power at a time when the log holds reports that no pass (round of
        decisions) has used yet. Data that was not synced to disk is lost.
        """
        while not self.healed.is_set():
            self.kernel.sleep(draw.expovariate(1 / 8))
            where, replaced = draw.choice(between.UNCOVERED), draw.choice([0.0, 1.0])
            if not self.healed.is_set():
                self.kernel.ambushes[where] = partial(self._power_fails, replaced=replaced)
            while where in self.kernel.ambushes:
                self.kernel.sleep(1.0)

    def _lose_power(self, draw: random.Random, process: Process) -> None:
        self._cut_power(draw, process)

    def _cut_power(self, draw: random.Random, process: Process, replaced: float = 0.25) -> None:
        off_s, host = draw.uniform(5.0, 30.0), process.host
        self.note("power", host=host.name, seconds=off_s)
        self.disk.cut(draw, lambda: self.kernel.cut_power(host))
        host.loses_power(self.kernel.clock, off_s)
        if draw.random() < replaced:  # another machine, and the state folder from its backup
            shutil.rmtree(self.settings.state_dir / "local", ignore_errors=True)
            store = Store(self.url)
            self.note("restored", host=host.name, seq=store.last_seq())
            store.close()

    def _power_fails(self, process: Process, _: str, replaced: float = 0.25) -> None:
        """Stop this process where it is, and cut its host's power. With the chance `replaced`, the
        host comes back as another machine that lacks the running jobs' files.
        """
        process.frozen_until = self.kernel.clock + 1e3
        draw = random.Random(f"power {self.plan.seed} {self.kernel.points}")
        nobody = self.kernel.process("mains", self.elsewhere)
        self.kernel.spawn(nobody, lambda: self._cut_power(draw, process, replaced))

    def _ask_to_stop(self, draw: random.Random, _: Process) -> None:
        name = draw.choice(sorted(self.services))
        self.services[name].told.append(15)
        self.note("stopped", process=name)

    def _upgrade(self, draw: random.Random, process: Process) -> None:
        """Install another version of the code, and ask all services to stop. They start again with
        the new version.
        """
        self._installed = True
        for name, service in sorted(self.services.items()):
            service.told.append(15)
            self.note("stopped", process=name)

    def upgraded(self) -> bool:
        """Return whether a newly installed version of the code has not been run yet: true for the
        first decider that asks after an installation, false for all later ones."""
        installed, self._installed = self._installed, False
        return installed

    def _promote(self, draw: random.Random, _: Process) -> None:
        """Replace the champion (the bundle of models that the service decides with) by another, in
        one step.
        """
        fresh = self.champion.with_name("fresh")
        fresh.symlink_to(draw.choice(self.champions))
        fresh.replace(self.champion)
        self.note("promoted")

    def _restart(self) -> None:
        """Kill services that no longer answer, and start those that have ended, as a service
        manager does.
        """
        for name, process in list(self.services.items()):
            if self.kernel.clock < process.host.off_until:
                continue
            if self.kernel.clock - process.heard_at > WATCHDOG_S - 1.0 and not process.dead:
                self.kernel.kill(process, "supervisor: watchdog")
            if process.dead and not process.threads:
                self.serve(name)

    # --- afterwards -------------------------------------------------------------------------

    def _read_log(self) -> None:
        """Add what the database holds to the run's history. It is read by plain SQL, since the
        service's own reader is under test.
        """
        engine = create_engine(self.url)
        with engine.connect() as connection:
            for seq, at, kind, job, actor, cause, body in connection.execute(text(EVENTS)):
                if not job.startswith(costs.NAMED):  # nobody's whose answers are judged
                    logged = {k: v for k, v in json.loads(body).items() if k in LOGGED}
                    self.run.history.append(
                        {
                            "what": "log",
                            "seq": seq,
                            "at": at,
                            "kind": kind,
                            "job": job,
                            "actor": actor,
                            "cause": cause,
                            "body": logged,
                        }
                    )
            for event, job, action, body in connection.execute(text(DECISIONS)):
                if not job.startswith(costs.NAMED):
                    self.run.history.append(
                        {
                            "what": "decision",
                            "event": event,
                            "job": job,
                            "action": action,
                            "nodes": list(json.loads(body).get("nodes") or ()),
                        }
                    )
            if left := costs.undecided(connection):
                self.run.wrong.append(f"{left} jobs of the backlog were never decided on")
        engine.dispose()
        self._audit()

    def _audit(self) -> None:
        store, bundles = Store(self.url), BundleStore(self.settings.state_dir / "bundles")
        found = audit(store, bundles.find, decide_again=True).divergences
        self.run.wrong += [f"audit: {one.sentence()}" for one in found]
        store.close()


EVENTS = "SELECT seq, at, kind, job_id, actor, cause, body FROM events ORDER BY seq"
DECISIONS = "SELECT event, job_id, action, body FROM decisions ORDER BY seq"
LOGGED = (
    "attempt", "state", "vc", "gpus", "operator", "priority", "node", "open", "holder", "term",
    "share", "time_limit_s", "after_any",
)  # fmt: skip


def database_of(url: str) -> Path | None:
    """Return the file of an SQLite database; None for a database server, which has a host of its
    own.
    """
    return Path(url.removeprefix("sqlite:///")) if url.startswith("sqlite:") else None


def _nodes() -> list[dict[str, Any]]:
    return [{"node": i, "vc": has.vc, "gpus": has.gpus} for i, has in enumerate(CLUSTER.nodes())]
