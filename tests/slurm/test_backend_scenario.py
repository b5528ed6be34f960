"""The service on real daemons: killed in place mode; following in advise and order."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.slurm import SlurmCluster
from benchmarks.slurm.place import place
from scheduler.assembly import CoreSpec
from scheduler.backends.events import Kind
from scheduler.backends.slurm.client import Slurm
from scheduler.backends.slurm.shape import Shape
from scheduler.service.follow.follower import Follower
from scheduler.service.log.header import FOLLOWED, LogHeader, establish
from scheduler.service.log.store.reads import Reads
from scheduler.service.log.store.schema import prepare
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.visibility import Role, Viewer


def test_no_job_is_lost_or_doubled_when_service_and_controller_die(tmp_path: Path) -> None:
    outcome = place(
        tmp_path, count=16, kills=2, restarts=1, most_s=2.0, gap_s=0.05, whole=False, patience_s=60
    )
    assert (outcome.kills, outcome.restarts) == (2, 1)
    assert outcome.faults == []
    assert outcome.most_sampled >= 1


@pytest.fixture(scope="module")
def busy() -> Iterator[SlurmCluster]:
    """Four nodes that the plugin leaves alone: four long jobs hold them, and eight wait."""
    with SlurmCluster(open_nodes=4) as slurm:
        for index in range(12):
            gpus = 8 if index < 4 else (1, 2, 4, 8)[index % 4]
            slurm.run(
                "sbatch", f"--gpus={gpus}", "--output=/dev/null", "--chdir=/tmp", "--time=60",
                "--wrap", "sleep 300", user="nobody",
            )  # fmt: skip
        until = time.monotonic() + 20
        while sum(j["job_state"] == "RUNNING" for j in slurm.jobs().values()) < 4:
            assert time.monotonic() < until
            time.sleep(0.1)
        yield slurm


def follower(
    cluster: SlurmCluster, store: Store | None, *, order: bool = False, policy: str = "pellucid"
) -> Follower:
    slurm = Slurm(cluster.environment)
    shape = Shape.followed(slurm.nodes())
    header = LogHeader(
        CoreSpec.of(shape.spec, policy), time.time(), backend=FOLLOWED, names=shape.names
    )
    if store is not None:
        prepare(store)
        establish(store, header)
    made = Follower(header, shape, slurm, store, order=order)
    if store is not None:
        assert made.take_over("here", 60.0)
    return made


def test_advice_explains_and_foresees_and_changes_nothing(
    busy: SlurmCluster, tmp_path: Path
) -> None:
    store = Store(f"sqlite:///{tmp_path}/p.db")
    following = follower(busy, store)
    was = {j: (e["job_state"], e["priority"], e["admin_comment"]) for j, e in busy.jobs().items()}
    following.look()
    reads = following.slurm.reads
    snapshot = following.look()
    assert following.slurm.reads == reads + 1, "one read per interval"
    assert (len(snapshot.running), len(snapshot.waiting), snapshot.left_out) == (4, 8, {})
    view = Reads(store.engine).seen_by(Viewer("root", Role.OPERATOR))
    waiting = snapshot.order[0]
    assert view.decisions(waiting)
    foreseen = view.forecast(waiting)
    assert foreseen is not None
    assert foreseen.start_p50 is not None
    assert foreseen.start_p50 > time.time() - 5
    now = {j: (e["job_state"], e["priority"], e["admin_comment"]) for j, e in busy.jobs().items()}
    assert now == was
    store.close()


def test_nothing_at_all_is_written_when_there_is_nowhere_to(busy: SlurmCluster) -> None:
    snapshot = follower(busy, None, policy="easy").look()
    assert len(snapshot.order) == 8
    first = max(snapshot.waiting.values(), key=lambda job: job.priority)
    assert snapshot.order[0] == first.id, "easy stands for Slurm: its own priorities"


def test_ordering_gives_slurm_the_order_of_the_core(busy: SlurmCluster, tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path}/p.db")
    following = follower(busy, store, order=True)
    held = busy.run(
        "sbatch", "--parsable", "--hold", "--gpus=1", "--wrap", "sleep 1", user="nobody"
    ).stdout.strip()
    snapshot = following.look()
    there = busy.jobs()
    given = [there[int(job)]["priority"] for job in snapshot.order]
    assert given == sorted(given, reverse=True)
    assert len(set(given)) == len(given)
    assert there[int(held)]["priority"] == 0, "what somebody holds stays held"
    events = store.read(kinds=[Kind.ORDERED])
    logged = {e.job_id: e.body["priority"] for e in events if "priority" in e.body}
    said = {e.job_id: e.body["comment"] for e in events if "comment" in e.body}
    assert said
    assert all(there[int(job)]["admin_comment"].strip('"') == text for job, text in said.items())
    assert logged
    assert all(there[int(job)]["priority"] == priority for job, priority in logged.items())
    following.look()
    again = len(store.read(kinds=[Kind.ORDERED]))
    assert again == len(events), "what is in order is left as it is"
    store.close()
