"""Kills the service at every write and every external action, and counts what got lost or doubled.

    python -m benchmarks.faults --json          2,000 seeded crashes per database and more
    python -m benchmarks.faults --crashes 300   a short run

A crash is an exception that nothing catches, raised before or after a write or an action of the
backend; everything the service had in memory is dropped, and another decider starts on the same
database and the same outside world (`scheduler.backends.simulated.World`), now and then one of
other code, which begins a new epoch. Meanwhile users submit, cancel and reorder, and operators add,
drain, move, retype and remove nodes and change settings. Databases: SQLite in a
temporary folder, and PostgreSQL when PELLUCID_TEST_DATABASE names one (`make faults` starts one).
Then a real `pellucid serve` with real processes is killed with SIGKILL (`benchmarks.kills`).

Per database: `crashes`; `lost`, jobs that were submitted and are nowhere, or whose end in the world
is not their end in the service; `doubled`, jobs run twice, at once or one after the other, or on a
node that is gone; `audit_divergences`, places where the database does not follow from its log.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog
from sqlalchemy import Connection, create_engine, insert, select, text

from benchmarks import kills
from benchmarks.asked import asked
from benchmarks.faulty import (
    Crash,
    FaultyBackend,
    FaultyStore,
    Fuse,
    Key,
    UpgradedDecider,
    hurry,
)  # fmt: skip
from features.clock import Clock
from features.job import Profile
from features.schema import State
from features.state import FEATURES
from models.bundle import Bundle
from scheduler.assembly import CoreSpec
from scheduler.backends.base import Launch, Purpose
from scheduler.backends.events import Event, Kind
from scheduler.backends.simulated import JobOutcome, World
from scheduler.backends.submission import Submission
from scheduler.core.cluster import ClusterSpec
from scheduler.core.decisions import Action, Decision
from scheduler.core.settings import ProfilingPartition
from scheduler.service.decide.decider import Decider
from scheduler.service.log.audit import audit
from scheduler.service.log.bundles import BundleStore
from scheduler.service.log.header import LogHeader, code_version, establish
from scheduler.service.log.record import Phase, first_row
from scheduler.service.log.snapshots import EVERY, StateCheckpoints
from scheduler.service.log.store.leases import LeaseLost
from scheduler.service.log.store.schema import prepare
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import jobs
from scheduler.simulation.work import Work

START = 1.7e9
LAST_S = 400.0  # by then everything else has happened
POLICIES = ("pellucid",) * 4 + ("lucid",) * 4 + ("qssf", "fifo-skip")
COUNTS = ("crashes", "jobs", "packed", "profiled", "takeovers_refused", "epochs", "reshaped", "set")


@dataclass
class Outcome:
    """What a run of one scenario, or several, came to."""

    crashes: int = 0
    jobs: int = 0
    packed: int = 0
    profiled: int = 0
    takeovers_refused: int = 0  # deciders that were replaced while they lived, and noticed
    epochs: int = 0  # begun by code that would have decided otherwise
    reshaped: int = 0  # nodes that came, went, moved or got GPUs of another type
    set: int = 0  # settings changed
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    divergences: list[str] = field(default_factory=list)
    where: Counter[str] = field(default_factory=Counter)

    def add(self, other: Outcome) -> None:
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.lost += other.lost
        self.doubled += other.doubled
        self.divergences += other.divergences
        self.where += other.where


class Scenario:
    """One seed: a small cluster that changes, a few dozen jobs, users who change their minds."""

    def __init__(self, seed: int, url: str, folder: Path, bundles: Sequence[Path] = ()):
        self.seed, self.url, self.folder = seed, url, folder
        draw = self.draw = random.Random(seed)
        self.clients = Store(url)  # what users do, in processes of their own
        hurry(self.clients)
        self.outcomes: dict[str, JobOutcome] = {}
        self.world = World(self.outcomes, start=START)
        self.asked: dict[Key, Launch] = {}
        self.ends: dict[Key, State] = {}
        self.submitted: list[str] = []
        self.fuse = Fuse()
        self.wall = START
        self.lives = 0
        self.refused = 0
        self.bundles = list(bundles)
        self.champion = folder / "champion"
        self.library = BundleStore(folder / "library")
        self.checkpoints = StateCheckpoints(folder / "snapshots", self.library.find)
        self.snapshot_every = draw.choice([None, 3, 20])
        self.found = Outcome()
        policy = draw.choice(POLICIES)
        spec = ClusterSpec({"left": 3, "right": 1}, 4, gpu_type="V100")
        partition = (
            ProfilingPartition(nodes={"left": 1}, limit_s=30.0, max_gpus=4)
            if draw.random() < 0.9
            else None
        )
        prepare(self.clients)
        header = LogHeader(
            CoreSpec.of(spec, policy, profiling=partition),
            START,
            backend="simulated",
            version=code_version(),
        )
        establish(self.clients, header)
        self.todo = self._script()

    # --- the script -----------------------------------------------------------------------------

    def _script(self) -> list[tuple[float, str, str]]:
        """(time, what, job or node), in order of time."""
        draw, todo = self.draw, list[tuple[float, str, str]]()
        for i in range(draw.randint(12, 32)):
            job_id = f"job{i:02d}"
            at = START + draw.uniform(0, 120)
            self.outcomes[job_id] = self._job_outcome()
            todo.append((at, "submit", job_id))
            if draw.random() < 0.25:
                todo.append((at + draw.expovariate(1 / 60), "cancel", job_id))
            if draw.random() < 0.2:
                todo.append((at + draw.expovariate(1 / 30), "priority", job_id))
        for _ in range(draw.randint(0, 2)):
            node, at = str(draw.randrange(6)), START + draw.uniform(0, 200)
            todo += [(at, "drain", node), (at + draw.uniform(10, 100), "open", node)]
        for i in range(draw.randint(0, 10)):
            what = draw.choice(["add", "remove", "change", "change", "set"])
            name = f"more{i // 2}" if what == "add" else str(draw.randrange(6))
            todo.append((START + draw.uniform(0, 250), what, name))
        todo.append((START + LAST_S, "room", ""))
        if draw.random() < 0.3:
            todo.append((START + draw.uniform(20, 200), "die", str(draw.randrange(4))))
        for i in range(len(self.bundles)):
            todo.append((START + draw.uniform(0, 250) * (i > 0), "promote", str(i)))
        return sorted(todo)

    def _job_outcome(self) -> JobOutcome:
        draw = self.draw
        profile = Profile(draw.uniform(5, 40), draw.uniform(2, 20), draw.uniform(500, 4000), False)
        state = draw.choices([State.COMPLETED, State.FAILED], [4, 1])[0]
        refused = "no such command" if draw.random() < 0.06 else ""
        work = Work(
            draw.choice([0.0, draw.uniform(1, 40), *[draw.uniform(40, 300)] * 3]),
            state,
            profile=profile if draw.random() < 0.8 else None,
        )
        return JobOutcome(work, refused=refused)

    def _act(self, what: str, name: str) -> None:
        """Something happens outside the decider."""
        at, draw = self.world.now(), self.draw
        if what == "submit":
            submission = Submission(
                name,
                ("train", name),
                draw.choice(["ann", "bob", "eve"]),
                draw.choices(["left", "right", "new", "nowhere"], [20, 20, 2, 1])[0],
                draw.choices([1, 2, 4, 8, 40], [20, 6, 3, 2, 1])[0],
                at,
                gpu_type="A100" if draw.random() < 0.04 else None,
                time_limit_s=draw.choice([None, None, 60.0]),
                share=draw.random() < 0.85,
                profile=draw.random() < 0.85,
                priority=draw.choice([0, 0, 0, 5]),
            )
            came = Event(Kind.SUBMITTED, at, name, submission.owner, body=submission.body())

            def row(connection: Connection, appended: list[Event]) -> None:
                connection.execute(insert(jobs).values(first_row(appended[0])))

            self.clients.append([came], row)
            self.submitted.append(name)
        elif what == "die":
            self.world.lose_node(int(name))
        elif what == "promote":
            self._promote(self.bundles[int(name)])
        else:
            self.clients.append(asked(draw, at, what, name))

    def _promote(self, bundle: Path) -> None:
        """Another champion appears under the same name, whole."""
        fresh = self.folder / f"champion-{self.draw.random()}"
        fresh.symlink_to(bundle)
        os.replace(fresh, self.champion)

    # --- lives of the service -------------------------------------------------------------------

    def run(self, most: int = 60, turns: int = 5000) -> Outcome:
        """Until every job is over; at most `most` crashes, then it may live for `turns` turns."""
        crashed, before = 0, None
        while True:
            self.fuse.left = self.draw.randint(1, 40) if crashed < most else None
            decider = self._decider()
            try:
                self._zombie(before, decider)
                before = None
                self._live(decider, turns)
                break
            except Crash:
                crashed += 1
                before = decider
            finally:
                decider.store.close()
        outcome = self._judge()
        self.clients.close()
        return outcome

    def _decider(self) -> Decider:
        self.lives += 1
        self.wall += 30.0  # whoever held the lease is not heard of any more
        kind = UpgradedDecider if self.draw.random() < 0.15 else Decider
        return kind(
            FaultyStore(self.url, self.fuse, Clock.by(lambda: self.wall)),
            lambda: FaultyBackend(self.world, self.fuse, self.asked, self.ends),
            self.library,
            holder=f"life-{self.lives}",
            champion=self.champion,
            bundle_poll_s=0.0,
            snapshots=self.checkpoints if self.snapshot_every else None,
            snapshot_every=self.snapshot_every or EVERY,
        )

    def _zombie(self, before: Decider | None, decider: Decider) -> None:
        """Now and then the one before was not dead, only slow: it goes on beside the new one."""
        assert decider.take_over()
        if before is None or before.lease is None or self.draw.random() < 0.7:
            return
        fuse, self.fuse.left = self.fuse.left, None
        try:
            before.turn(0.0)
        except LeaseLost:
            self.refused += 1
        else:
            raise AssertionError("a decider without its lease went on deciding")
        for launch in list(self.asked.values()):
            before.backend.launch(launch)  # what it was about to do when it was replaced
        self.fuse.left = fuse

    def _live(self, decider: Decider, turns: int) -> None:
        for _ in range(turns):
            now = self.world.now()
            while self.todo and self.todo[0][0] <= now:
                _, what, name = self.todo.pop(0)
                self._act(what, name)
            wait_s = self.todo[0][0] - now if self.todo else 50.0
            self._watch(decider, decider.turn(self.draw.choice([0.0, wait_s, wait_s])))
            self.wall += 1.0
            live = decider.state.ledger.records.values()
            if not self.todo and not decider.state.pending and all(r.phase.over for r in live):
                return

    # --- judgement ------------------------------------------------------------------------------

    def _watch(self, decider: Decider, decisions: Sequence[Decision]) -> None:
        """Nobody holds, or is given, GPUs of a node that is not there."""
        cluster, ledger = decider.state.core.cluster, decider.state.ledger
        self.found.reshaped += sum(d.action is Action.CHANGE_NODE for d in decisions)
        if decider.state.pending:
            return
        cluster.validate()
        ledger.validate()
        held = {r.job_id for r in ledger.records.values() if r.phase.holds_gpus}
        nodes = {node: record.has for node, record in ledger.nodes.records.items()}
        astray = {run.job.job_id for run in cluster.runs.values() if set(run.nodes) - set(nodes)}
        if held != set(cluster.runs) or nodes != cluster.nodes or astray:
            self.found.doubled.append(
                f"seed {self.seed}: GPUs of {held ^ set(cluster.runs) | astray}, nodes {nodes}"
            )

    def _judge(self) -> Outcome:
        fuse, found = self.fuse, self.found
        found.crashes, found.where = fuse.crashes.total(), fuse.crashes
        found.jobs, found.takeovers_refused = len(self.submitted), self.refused
        kinds = Counter(event.kind for event in self.clients.read())
        found.epochs, found.set = kinds[Kind.EPOCH], kinds[Kind.SETTINGS_SET]
        found.doubled += [f"seed {self.seed}: {problem}" for problem in self.world.problems]
        with self.clients.engine.connect() as connection:
            rows = {row.job_id: row for row in connection.execute(select(jobs))}
        for job_id in self.submitted:
            if job_id not in rows or not Phase(rows[job_id].phase).over:
                where = rows[job_id].phase if job_id in rows else "nowhere"
                found.lost.append(f"seed {self.seed}: {job_id} is {where}")
                continue
            self._judge_job(job_id, rows[job_id], found)
        found.divergences += [
            f"seed {self.seed}: {d.sentence()}"
            for d in audit(self.clients, self.library.find).divergences
        ]
        return found

    def _judge_job(self, job_id: str, row: object, found: Outcome) -> None:
        """Compare a job's end with what happened in the world."""
        begun = [key for key in self.world.begun if key[0] == job_id]
        runs = [key for key in begun if self.asked[key].purpose is Purpose.RUN]
        looks = [key for key in begun if self.asked[key].purpose is Purpose.PROFILE]
        finished = [key for key in begun if key in self.ends]
        if len(runs) > 1 or len(looks) > 1 or len(finished) > 1:
            found.doubled.append(f"seed {self.seed}: {job_id} began {begun}")
        found.profiled += bool(looks)
        found.packed += any(self.asked[key].partner for key in runs)
        state = self.ends[finished[0]] if finished else None
        shown = getattr(row, "state", None)
        if state is not None and state.value != shown:
            found.lost.append(f"seed {self.seed}: {job_id} ended {state}, the service says {shown}")
        if not begun and getattr(row, "phase", "") == Phase.ENDED and shown != State.FAILED:
            found.lost.append(f"seed {self.seed}: {job_id} never began, the service says {shown}")


# --- many of them -----------------------------------------------------------------------------


def run(
    url: str | None,
    crashes: int,
    *,
    first: int = 0,
    bundles: Sequence[Path] | None = None,
    tell: bool = False,
) -> Outcome:
    """Scenarios until there were so many crashes.

    Args:
        url: names a PostgreSQL that is emptied for each; None: SQLite files.
        first: seed of the first scenario.
        bundles: that become champion in the course; made when not given.
        tell: say on standard error how far it is.
    """
    total, seed, began = Outcome(), first, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="pellucid-faults-") as name:
        bundles = make_bundles(Path(name) / "bundles") if bundles is None else bundles
        while total.crashes < crashes:
            folder = Path(name) / str(seed)
            folder.mkdir()
            database = emptied(url) if url else f"sqlite:///{folder / 'pellucid.db'}"
            total.add(Scenario(seed, database, folder, bundles).run())
            shutil.rmtree(folder)
            seed += 1
            if tell:
                spent = time.monotonic() - began
                print(
                    f"\r{total.crashes} of {crashes} crashes, {seed - first} scenarios, "
                    f"{len(total.lost)} lost, {len(total.doubled)} doubled, {spent:.0f} s ",
                    end="",
                    file=sys.stderr,
                    flush=True,
                )
    if tell:
        print(file=sys.stderr)
    return total


def make_bundles(folder: Path) -> list[Path]:
    """Two bundles that can be decided with, and one that cannot."""
    import numpy as np
    import pandas as pd

    from models.training.duration import fit_duration
    from models.training.packing import fit_packing, fit_pair_speed
    from models.training.simulated import simulated_pairs

    specs = [spec for spec in FEATURES if spec.name in ("gpus", "time_limit_s", "gpu_type")]
    rng, rows = np.random.default_rng(0), 400
    frame = pd.DataFrame(
        {
            "gpus": rng.choice([1.0, 2.0, 4.0, 8.0], rows),
            "time_limit_s": rng.choice([60.0, np.nan], rows),
            "gpu_type": pd.Series(rng.choice(np.array(["V100", None], object), rows), dtype=object),
        }
    )[[spec.name for spec in specs]]
    duration = np.expm1(np.log2(frame["gpus"]) + rng.normal(3, 1, rows)).clip(1).to_numpy()
    ends = np.linspace(1e9, 1e9 + rows, rows)
    pairs = simulated_pairs(0, pairs=300)
    packing, speed = fit_packing(pairs, repeats=1).model, fit_pair_speed(pairs).model
    made = []
    for seed in (1, 2):
        model = fit_duration(frame, duration, ends, specs, seed=seed).model
        bundle = Bundle(duration=model, packing=packing, pair_speed=speed, metadata={"seed": seed})
        made.append(bundle.save(folder / str(seed)))
    return [*made, Bundle().save(folder / "empty")]


def emptied(url: str) -> str:
    """A PostgreSQL with nothing in it."""
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("DROP SCHEMA IF EXISTS public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))
    engine.dispose()
    return url


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--crashes", type=int, default=2000, help="per database, at least")
    parser.add_argument("--kills", type=int, default=10, help="of a real service by SIGKILL")
    parser.add_argument("--seed", type=int, default=0, help="of the first scenario")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    databases: dict[str, str | None] = {"sqlite": None}
    if url := os.environ.get("PELLUCID_TEST_DATABASE"):
        databases["postgresql"] = url
    figures: dict[str, dict[str, Any]] = {}
    wrong: list[str] = []
    for name, url in databases.items():
        outcome = run(url, options.crashes, first=options.seed, tell=sys.stderr.isatty())
        figures[name] = {
            **_counts(outcome.crashes, outcome.lost, outcome.doubled, outcome.divergences),
            **{name: getattr(outcome, name) for name in COUNTS[1:]},
            "where": dict(outcome.where.most_common()),
        }
        wrong += [*outcome.lost, *outcome.doubled, *outcome.divergences]
    if options.kills:
        with tempfile.TemporaryDirectory(prefix="pellucid-kills-") as folder:
            killed = kills.run(Path(folder), kills=options.kills, number=20 * options.kills)
        figures["sigkill"] = {
            **_counts(killed.kills, killed.lost, killed.doubled, killed.divergences),
            "jobs": killed.jobs,
        }
        wrong += [*killed.lost, *killed.doubled, *killed.divergences]
    for line in wrong[:20]:
        print(line, file=sys.stderr)
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        for name, figure in figures.items():
            print(name, ", ".join(f"{k} {v}" for k, v in figure.items() if k != "where"))
    sys.exit(bool(wrong))


def _counts(
    crashes: int, lost: Sequence[str], doubled: Sequence[str], divergences: Sequence[str]
) -> dict[str, Any]:
    return {
        "crashes": crashes,
        "lost": len(lost),
        "doubled": len(doubled),
        "audit_divergences": len(divergences),
    }


if __name__ == "__main__":
    main()
