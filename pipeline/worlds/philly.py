"""Track `philly`: another company's jobs under the rules of track `honest`, with no setting changed
for them.

The list of jobs (`philly.csv`) says when each was submitted, how long it ran, its GPUs and its
virtual cluster, and no more: no user, no name, no end state. What each job trains is drawn at
random from the measured configurations in the folder `packing/`; without that, no two jobs could
share a GPU.

The cluster was large for the jobs that the list has: GPUs are in use 13 % of the time, and no job
waits long. With `compress` below about 0.3 there are queues.
"""

from __future__ import annotations

from datetime import datetime
from itertools import cycle
from pathlib import Path
from zoneinfo import ZoneInfo

from features.job import Job
from features.schema import State
from pipeline.worlds import durations as predicted
from pipeline.worlds import venus
from pipeline.worlds.closed_loop import in_loop
from pipeline.worlds.pairs import unseen_pair_predictor
from pipeline.worlds.scenario import Scenario
from pipeline.worlds.venus import TrackError, jitter
from scheduler.core.cluster import ClusterSpec
from scheduler.core.settings import ProfilingPartition
from scheduler.simulation.work import PairTable, Work, Workload

# Nodes of 8 GPUs by virtual cluster, as Helios' artifact has them; jobs of four others (18) are
# left out there too.
VCS = {
    "6214e9": 64, "7f04ca": 32, "11cb48": 16, "b436b2": 64, "ee9e8c": 64, "e13805": 16,
    "6c71a0": 32, "2869ce": 16, "ed69ec": 8, "103959": 8, "0e4a51": 32,
}  # fmt: skip
PROFILING = ProfilingPartition(nodes={"6214e9": 1, "b436b2": 1}, scale_from="6214e9", known_s=0.0)
_CLOCK = ZoneInfo("America/Los_Angeles")


def load(folder: Path, *, bare: bool = False) -> Workload:
    """Return the jobs of a folder with `philly.csv`, in order of submission. Repeated rows, and
    jobs of virtual clusters that are not in `VCS`, are left out and counted.

    Args:
        bare: leave out what the jobs train: no job has a profile, so none shares a GPU.

    Raises TrackError if a file is missing or malformed.
    """
    cluster = ClusterSpec(VCS, name="philly")
    seen: set[tuple[str, ...]] = set()
    found: list[tuple[Job, float]] = []
    left_out = 0
    try:
        for line, row in enumerate(venus.read_rows(folder / "philly.csv"), 2):
            key = tuple(row.values())
            if row["cluster"] not in VCS or key in seen:
                left_out += 1
                continue
            seen.add(key)
            moment = datetime.fromisoformat(row["timestamp"]).replace(tzinfo=_CLOCK).timestamp()
            gpus = int(row["num_gpus"])
            found.append(
                (Job(f"line-{line}", moment, gpus, vc=row["cluster"]), float(row["duration"]))
            )
    except (KeyError, ValueError) as error:
        raise TrackError(f"{folder}: philly.csv: {error!r} is missing or unknown") from None
    found.sort(key=lambda pair: pair[0].submit_time)
    trained = cycle([(None, None)] if bare else venus.configurations(folder.parent / "packing"))
    work = {
        job.job_id: Work(duration_s, State.UNKNOWN, *what)
        for (job, duration_s), what in zip(found, trained, strict=False)
    }
    return Workload(
        name="philly", jobs=[job for job, _ in found], work=work, cluster=cluster, left_out=left_out
    )


def scenario(
    folder: Path,
    *,
    seed: int = 0,
    durations: str | None = None,
    compress: float = 1.0,
    loop: str = "open",
) -> Scenario:
    """Return the scenario of the Philly track, from a folder that holds `philly.csv`. The other
    arguments are those of `honest.scenario`."""
    workload = jitter(in_loop(load(folder), loop), seed, compress=compress)
    packing = folder.parent / "packing"
    pair_predictor = unseen_pair_predictor(workload, packing)
    return Scenario(
        "philly",
        workload,
        PairTable(venus.pair_speeds(packing), unmeasured=0.8, cap=1.0),
        predicted.chosen(durations, predicted.sources(workload, seed)),
        pair_predictor=None if pair_predictor is None else lambda: pair_predictor,
        arrivals=None,
        profiling=PROFILING,
        seed=seed,
        loop=loop,
    )
