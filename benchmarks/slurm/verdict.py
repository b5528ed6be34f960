"""What came of the place scenario: the service's log, Slurm's accounts and the jobs' own notes,
compared job by job."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select

from benchmarks.slurm.cluster import SlurmCluster
from scheduler.backends.slurm.parse import hosts
from scheduler.service.log.audit import audit
from scheduler.service.log.bundles import BundleStore
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import decisions, jobs
from scheduler.service.settings import Settings

GRANTS = ("start", "pack", "profile")
APART_S = 1.0  # decisions less far apart have no order that whole seconds could show
Place = dict[str, tuple[int, ...]]  # node -> GPUs


@dataclass
class Outcome:
    """Figures; every list holds one line per job that is not as it should be.

    Attributes:
        lost: not completed, in the log, in the accounts or by its own note.
        doubled: began more than once. undone: given GPUs more often than once.
        misplaced: on other nodes or GPUs than decided, by what Slurm was seen to say of it while it
            ran or by the environment of its script.
        disagree: log and sacct differ in state, exit code, nodes, number of GPUs or, by over a
            second, times.
        divergences: of `pellucid audit`.
        samples: looks at what Slurm says of who holds which GPU; unseen: jobs in none of them.
            most_sampled: most jobs on one GPU in any of them; most_recorded: by the times of
            sacct. shared: jobs packed.
        pairs: of jobs decided in different passes, a second or more apart; out_of_order: those
            that Slurm started the other way round; noted: those whose scripts say that they began
            the other way round (a node may take a while to begin what was started).
        undisturbed: of the jobs decided 15 s or more after a kill.
    """

    jobs: int = 0
    seconds: float = 0.0
    kills: int = 0
    restarts: int = 0
    samples: int = 0
    unseen: int = 0
    most_sampled: int = 0
    most_recorded: int = 0
    shared: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    undone: list[str] = field(default_factory=list)
    misplaced: list[str] = field(default_factory=list)
    disagree: list[str] = field(default_factory=list)
    divergences: list[str] = field(default_factory=list)
    pairs: int = 0
    out_of_order: int = 0
    noted: int = 0
    median_decision_to_running_s: float | None = None
    p90_decision_to_running_s: float | None = None
    median_undisturbed_s: float | None = None

    @property
    def faults(self) -> list[str]:
        """What the scenario must not show, in sentences; empty: it holds."""
        lists = ("lost", "doubled", "undone", "misplaced", "disagree", "divergences")
        found = [f"{name}: {line}" for name in lists for line in getattr(self, name)]
        if max(self.most_sampled, self.most_recorded) > 2:
            found.append("more than two jobs were on a GPU")
        if self.out_of_order:
            found.append(f"{self.out_of_order} of {self.pairs} pairs began out of order")
        return found


@dataclass(frozen=True, slots=True)
class Note:
    """What a job's script wrote when it began: when, and on which GPUs."""

    at: float
    place: Place


def notes(text: str) -> dict[str, list[Note]]:
    """Lines of id, time, node and GPUs, by job."""
    found: dict[str, list[Note]] = {}
    for line in text.splitlines():
        job_id, at, node, gpus = line.split()
        place = {node: tuple(map(int, gpus.split(",")))}
        found.setdefault(job_id, []).append(Note(float(at), place))
    return found


@dataclass(frozen=True, slots=True)
class Account:
    """A job as sacct has it. Times are whole seconds since the epoch; None = not yet."""

    state: str
    exit_code: int
    start: float | None
    end: float | None
    nodes: tuple[str, ...]
    gpus: int


def accounts(cluster: SlurmCluster) -> dict[str, Account]:
    """What the accounts hold, by job id."""
    columns = "JobID,State,ExitCode,Start,End,NodeList,AllocTRES"
    told = cluster.run(
        "sacct", "-X", "-n", "-P", "-a", "-S", "now-1days", "-o", columns,
        environment={"SLURM_TIME_FORMAT": "%s"},
    ).stdout  # fmt: skip
    found = {}
    for line in told.splitlines():
        job_id, state, code, start, end, nodes, tres = line.split("|")
        (gpus,) = [int(part[10:]) for part in tres.split(",") if part[:10] == "gres/slot="] or [0]
        found[job_id] = Account(
            state.split()[0], int(code.partition(":")[0]), _at(start), _at(end), hosts(nodes), gpus
        )
    return found


def _at(text: str) -> float | None:
    return float(text) if text.isdigit() else None


def judge(
    outcome: Outcome,
    settings: Settings,
    ids: Sequence[str],
    held: Mapping[str, Account],
    places: Mapping[str, Place],
    noted: Mapping[str, Sequence[Note]],
    disturbed: Sequence[float],
) -> None:
    """Fill in the outcome.

    Args:
        ids: jobs that were submitted.
        places: where jobs were seen. noted: by each job itself.
        disturbed: when the service was killed.
    """
    store = Store(settings.database)
    with store.reading() as connection:
        logged = {r.job_id: r._asdict() for r in connection.execute(select(jobs))}
        order = select(decisions).where(decisions.c.action.in_(GRANTS)).order_by(decisions.c.seq)
        granted = [(r.at, r.job_id, r.event, json.loads(r.body)) for r in connection.execute(order)]
    checked = audit(store, BundleStore(settings.state_dir / "bundles").find)
    outcome.divergences = [d.sentence() for d in checked.divergences]
    names = store.read(limit=1)[0].body["names"]
    store.close()
    decided = {
        job_id: {
            names[node]: _indices(mask)
            for node, mask in zip(body["nodes"], body["gpus"], strict=True)
        }
        for _, job_id, _, body in granted
    }
    for job_id in ids:
        mine, theirs = logged.get(job_id), held.get(job_id)
        states = {mine["state"] if mine else None, theirs.state.lower() if theirs else None}
        if job_id not in noted or states != {"completed"}:
            outcome.lost.append(f"{job_id}: {states}, began {len(noted.get(job_id, ()))} times")
            continue
        if len(noted[job_id]) > 1:
            outcome.doubled.append(job_id)
        if sum(other == job_id for _, other, _, _ in granted) != 1:
            outcome.undone.append(job_id)
        where = decided.get(job_id, {})
        outcome.unseen += job_id not in places
        for seen in (places.get(job_id, where), noted[job_id][0].place):
            if seen != where:
                outcome.misplaced.append(f"{job_id}: {seen} for {where}")
        assert mine is not None
        assert theirs is not None
        if said := _difference(mine, theirs, where):
            outcome.disagree.append(f"{job_id}: {said}")
    outcome.shared = sum(body["action"] == "pack" for _, _, _, body in granted)
    outcome.most_recorded = _most(held, decided)
    begun = {job_id: ones[0].at for job_id, ones in noted.items()}
    _times(outcome, granted, begun, disturbed)
    _order(outcome, granted, held, begun)


def _difference(mine: Mapping[str, Any], theirs: Account, decided: Place) -> str:
    if mine["exit_code"] != theirs.exit_code:
        return f"exit code {mine['exit_code']} in the log, {theirs.exit_code} in sacct"
    if set(decided) != set(theirs.nodes):
        return f"nodes {sorted(decided)}, {sorted(theirs.nodes)}"
    if (gpus := sum(map(len, decided.values()))) != theirs.gpus:
        return f"{gpus} GPUs, {theirs.gpus} slots"
    for name, at in (("started_at", theirs.start), ("ended_at", theirs.end)):
        if at is None or mine[name] is None or not -1.0 <= mine[name] - at <= 1.0:
            return f"{name} {mine[name]}, {at}"
    return ""


def _most(held: Mapping[str, Account], places: Mapping[str, Place]) -> int:
    """Most jobs on one GPU at a time, by the times of sacct; of one second, ends go first."""
    changes: dict[tuple[str, int], list[tuple[float, int]]] = {}
    for job_id, where in places.items():
        account = held.get(job_id)
        if account is None or account.start is None or account.end is None:
            continue
        for node, gpus in where.items():
            for gpu in gpus:
                both = [(account.start, 1), (account.end, -1)]
                changes.setdefault((node, gpu), []).extend(both)
    most = 0
    for ones in changes.values():
        there = 0
        for _, step in sorted(ones):
            most = max(most, there := there + step)
    return most


def _times(
    outcome: Outcome,
    granted: Sequence[tuple[float, str, int, Any]],
    begun: Mapping[str, float],
    disturbed: Sequence[float],
) -> None:
    both = [(at, begun[job_id]) for at, job_id, _, _ in granted if job_id in begun]
    waits = sorted(begin - at for at, begin in both)
    if not waits:
        return
    outcome.median_decision_to_running_s = round(statistics.median(waits), 3)
    outcome.p90_decision_to_running_s = round(waits[int(0.9 * (len(waits) - 1))], 3)
    calm = [b - at for at, b in both if not any(-1 < at - d < 15 for d in disturbed)]
    outcome.median_undisturbed_s = round(statistics.median(calm), 3) if calm else None


def _order(
    outcome: Outcome,
    granted: Sequence[tuple[float, str, int, Any]],
    held: Mapping[str, Account],
    begun: Mapping[str, float],
) -> None:
    known = [
        (at, event, held[job_id].start or 0.0, begun[job_id])
        for at, job_id, event, _ in granted
        if job_id in held and job_id in begun
    ]
    for i, (at, event, start, note) in enumerate(known):
        for later, other, other_start, other_note in known[i + 1 :]:
            if event != other and later - at >= APART_S:
                outcome.pairs += 1
                outcome.out_of_order += start > other_start
                outcome.noted += note > other_note


def _indices(mask: int) -> tuple[int, ...]:
    return tuple(i for i in range(mask.bit_length()) if mask >> i & 1)
