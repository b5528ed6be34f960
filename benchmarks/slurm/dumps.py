"""Replays six sacct dumps: two of real daemons, and four of a batch system that shares no code with
the policy `slurm`.

For each dump it checks that every GPU is found. It also checks that the replayed schedule under
Slurm's own policy comes within 15 % of the recorded waits; where it does not, no saving may be
stated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.sites import SITES, hosts, write
from benchmarks.slurm.recording import kept, record
from benchmarks.slurm.university import NODES
from pipeline.replay.figures import FIT_MEAN, doubts
from pipeline.replay.runs import VARIANTS, Cell, cell
from pipeline.replay.site import DumpOptions, read_site

REAL = (74, 106)  # jobs
EVERY_S = 0.05  # all at once, so that they wait
MADE_UP = {  # dump: site, whether its nodes and settings are given
    "15 x 8 + 20 x 4 GPUs": ("mixed", False),
    "the same, nodes given": ("mixed", True),
    "a limit on GPUs per user": ("limited", True),
    "one partition, 15 x 8 + 40 x 2": ("one", True),
}
Made = tuple[str, int, Path, Path | None]  # name, GPUs there are, dump, what Slurm printed


@dataclass(frozen=True, slots=True)
class Dump:
    """The result of one replayed dump. Waits are means in seconds; `refused` is why no saving is
    stated.
    """

    dump: str
    jobs: int
    gpus: int
    gpus_found: int
    recorded_s: float
    replayed_s: float
    rank_correlation: float | None
    refused: list[str]

    @property
    def missed(self) -> str:
        """Return as text how the replay of this dump misses its target; "" if it does not."""
        if self.gpus_found != self.gpus:
            return f"{self.dump}: {self.gpus_found} GPUs for {self.gpus}"
        near = abs(self.replayed_s - self.recorded_s) <= FIT_MEAN * self.recorded_s
        return "" if near or self.refused else f"{self.dump}: savings stated on a misfit"


def dumps(seed: int, keep: Path | None, tell: Callable[[str], None]) -> list[Dump]:
    """Return all six replays. Those of real daemons use workloads of `seed` and `seed` + 1.

    Args:
        keep: folder that keeps the recordings of real daemons; None: they are made anew each time.
        tell: called with each line of progress.
    """
    found = []
    with TemporaryDirectory(prefix="pellucid-dumps-") as folder:
        for number, (name, gpus, dump, printed) in enumerate(_made(Path(folder), seed, keep, tell)):
            scratch = Path(folder) / f"scratch{number}"
            site = read_site(dump, scratch, DumpOptions(printed=[printed] if printed else []))
            told = cell(site, Cell(next(one for one in VARIANTS if one.key == "slurm")))
            if told is None:
                raise RuntimeError(f"{name}: Slurm's own schedule did not end")
            test = told["backtest"]
            found.append(
                Dump(
                    name,
                    test["jobs"],
                    gpus,
                    site.workload.cluster.gpus,
                    test["avg_wait_recorded_s"],
                    test["avg_wait_replayed_s"],
                    test["rank_correlation"],
                    doubts(told),
                )
            )
            tell(str(found[-1]))
    return found


def _made(
    folder: Path, seed: int, keep: Path | None, tell: Callable[[str], None]
) -> Iterator[Made]:
    for number, jobs in enumerate(REAL):
        made = partial(record, seed + number, jobs, EVERY_S, tell)
        run = kept(keep, seed + number, made)
        dump, printed = folder / f"real{number}.txt", folder / f"site{number}.txt"
        dump.write_text(run.sacct)
        printed.write_text(run.site)
        yield f"real Slurm, {jobs} jobs", _GPUS, dump, printed
    for name, (site, given) in MADE_UP.items():
        dump, printed = write(site, folder / f"{site}{given}", seed)
        yield name, sum(host.gpus for host in hosts(SITES[site])), dump, printed if given else None


_GPUS = sum(sum(gpus.values()) for _, _, gpus, _ in NODES)
