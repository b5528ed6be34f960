"""Writes the logs of older versions that `test_older_log.py` goes on with. For each, with its code:

    git worktree add ../older c737a8b
    cd ../older && PYTHONPATH=. python PATH/TO/tests/scheduler/service/log/older/make.py c737a8b

It writes beside itself: the database as SQL, the journal of the simulated world, and the bundle
that was decided with. Times are given, no clock is read: twice the same, but for the digest of the
code that made it. The jobs are made up.
"""

import json
import random
import sqlite3
import sys
import tempfile
from pathlib import Path

from features.job import Profile
from scheduler.backends.base import Launch
from scheduler.backends.simulated import World, by_command
from tests.scheduler.service.desk import START, Desk

NAME = sys.argv[1]
if NAME == "9ff0a41":
    from benchmarks.faults import make_bundles
    from scheduler.cluster import ClusterSpec
    from scheduler.service.events import Kind
    from scheduler.service.genesis import Partition
    from scheduler.service.store.schema import prepare
    from scheduler.service.store.store import Store
    from scheduler.work import Work

    from scheduler.backends.simulated import Fate

    POLICY = "lucid"
else:
    from benchmarks.chaos.changes import make_bundles
    from scheduler.backends.events import Kind
    from scheduler.backends.simulated import JobOutcome as Fate
    from scheduler.core.cluster import ClusterSpec
    from scheduler.core.settings import ProfilingPartition as Partition
    from scheduler.service.log.store.schema import prepare
    from scheduler.service.log.store.store import Store
    from scheduler.simulation.work import Work

    POLICY = "pellucid"

HERE = Path(__file__).parent
LIGHT = Profile(10.0, 5.0, 1000.0, False)


def fate(launch: Launch) -> Fate:
    """``sleep SECONDS``, ``false``; each is as light as the others."""
    work = by_command(launch).work
    return Fate(Work(work.duration_s, work.state, profile=LIGHT))


def live(folder: Path) -> None:
    """A morning of a small service, up to a moment at which it is killed."""
    random.seed(0)
    store = Store(f"sqlite:///{folder / 'pellucid.db'}")
    prepare(store)
    desk = Desk(
        store, folder, policy=POLICY, cluster=ClusterSpec({"vc": 3}, 4, gpu_type="V100"),
        partition=Partition(nodes={"vc": 1}, limit_s=30.0, max_gpus=4),
        champion=folder / "champion",
    )  # fmt: skip
    desk.world = World(fate, start=START, path=HERE / f"{NAME}.world.jsonl")
    desk.restart()

    def submit(name: str, seconds: float, gpus: int = 4, **more: object) -> None:
        desk.submit(name, gpus=gpus, command=("sleep", f"{seconds:g}"), name=name, **more)

    submit("short", 20)
    submit("ended", 200, gpus=2, owner="bob")
    desk.submit("failed", gpus=1, command=("false",))
    submit("toolarge", 60, gpus=40)
    desk.turn()
    desk.turn(40.0)
    submit("timeout", 500, gpus=2, time_limit_s=90.0, profile=False)
    submit("cancelled", 50)
    desk.turn()
    desk.cancel("cancelled")
    for _ in range(6):
        desk.turn(60.0)
    for name, owner in (("alone", "ann"), ("packed", "bob"), ("other", "eve")):
        submit(name, 5000, owner=owner)
        for _ in range(3):
            desk.turn(40.0)
    desk.submit("lost", gpus=1, command=("sleep", "900"), profile=False)
    desk.ask(Kind.NODE_SET, node=1, open=False)
    submit("waits", 300, share=False, owner="bob")
    submit("urgent", 100, gpus=8)
    desk.ask(Kind.PRIORITY_SET, "urgent", priority=5)
    for _ in range(4):
        desk.turn(30.0)
    submit("looked-at", 600, gpus=2)
    desk.turn(1.0)
    desk.turn(1.0)
    submit("fresh", 60, gpus=1, owner="eve")
    store.close()


def main() -> None:
    (HERE / f"{NAME}.world.jsonl").unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bundle = make_bundles(folder / "made")[0]
        (folder / "champion").symlink_to(bundle)
        live(folder)
        with sqlite3.connect(folder / "pellucid.db") as database:
            text = "\n".join(database.iterdump()) + "\n"
        (HERE / f"{NAME}.sql").write_text(text.replace(str(folder), "/srv/pellucid"))
        for kept in (folder / "bundles").glob("*/*"):
            target = HERE / f"{NAME}.bundle" / kept.name
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(kept.read_bytes())
    world = HERE / f"{NAME}.world.jsonl"
    began, *rest = world.read_text().splitlines(keepends=True)
    world.write_text("".join([json.dumps([*json.loads(began)[:2], START]) + "\n", *rest]))


if __name__ == "__main__":
    main()
