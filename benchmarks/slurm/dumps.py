"""Six sacct dumps replayed: two of real daemons, four of a batch system that shares no code.

Of each: whether every GPU is found, and whether Slurm's own schedule comes within 15 % of the
recorded waits, or else no saving is stated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.sites import SITES, hosts, write
from benchmarks.slurm.cluster import SlurmCluster
from benchmarks.slurm.processes import until
from benchmarks.slurm.university import NODES
from benchmarks.slurm.workload import ACCOUNTING, orders
from pipeline.replay.figures import FIT_MEAN, misfit
from pipeline.replay.runs import VARIANTS, Cell, cell
from pipeline.replay.site import read_site

# as docs/replay.md asks for them
SACCT = (
    "JobID,JobName,User,Account,Partition,QOS,Submit,Eligible,Start,End,Timelimit,State,Reason,"
    "Priority,Flags,NNodes,NodeList,ReqTRES,AllocTRES"
)
ASSOC = "Account,User,Partition,ParentName,Share,Priority,GrpTRES,GrpJobs,MaxTRES,MaxJobs,MaxWall"
REAL = (74, 106)  # jobs
EVERY_S, PATIENCE_S = 0.8, 900.0
MADE_UP = {  # dump: site, whether its nodes and settings are given
    "15 x 8 + 20 x 4 GPUs": ("mixed", False),
    "the same, nodes given": ("mixed", True),
    "a limit on GPUs per user": ("limited", True),
    "one partition, 15 x 8 + 40 x 2": ("one", True),
}
Made = tuple[str, int, Path, Path | None]  # name, GPUs there are, dump, what Slurm printed


@dataclass(frozen=True, slots=True)
class Dump:
    """One replayed. Waits are means in seconds; `refused`: why no saving is stated."""

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
        """What does not hold of it; "": nothing."""
        if self.gpus_found != self.gpus:
            return f"{self.dump}: {self.gpus_found} GPUs for {self.gpus}"
        near = abs(self.replayed_s - self.recorded_s) <= FIT_MEAN * self.recorded_s
        return "" if near or self.refused else f"{self.dump}: savings stated on a misfit"


def dumps(seed: int, tell: Callable[[str], None]) -> list[Dump]:
    """All six, the real ones with the workloads of `seed` and the next."""
    found = []
    with TemporaryDirectory(prefix="pellucid-dumps-") as folder:
        for number, (name, gpus, dump, printed) in enumerate(_made(Path(folder), seed, tell)):
            scratch = Path(folder) / f"scratch{number}"
            site = read_site(dump, scratch, printed=[printed] if printed else [])
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
                    misfit(test),
                )
            )
            tell(str(found[-1]))
    return found


def _made(folder: Path, seed: int, tell: Callable[[str], None]) -> Iterator[Made]:
    for number, jobs in enumerate(REAL):
        with _real(folder / f"real{number}", seed + number, jobs) as (dump, printed):
            yield f"real Slurm, {jobs} jobs", _GPUS, dump, printed
    for name, (site, given) in MADE_UP.items():
        dump, printed = write(site, folder / f"{site}{given}", seed)
        yield name, sum(host.gpus for host in hosts(SITES[site])), dump, printed if given else None


_GPUS = sum(sum(gpus.values()) for _, _, gpus, _ in NODES)


@contextmanager
def _real(folder: Path, seed: int, jobs: int) -> Iterator[tuple[Path, Path]]:
    """What `sacct`, `scontrol` and `sacctmgr` print once a workload is over."""
    folder.mkdir()
    with SlurmCluster(university=True, accounting=True) as slurm:
        for words in ACCOUNTING:
            slurm.run("sacctmgr", "-i", *words.split())
        began, ids = time.time(), list[str]()
        for order in orders(seed, jobs, EVERY_S):
            time.sleep(max(0.0, began + order.at - time.time()))
            after = "" if order.after is None else ids[order.after]
            ids.append(slurm.run(*order.command(after), user=order.user).stdout.strip())

        def text() -> str:
            return slurm.run("sacct", "-X", "-a", "-D", "-P", "-o", SACCT).stdout

        def over() -> bool:
            live = ("PENDING", "RUNNING", "COMPLETING")
            return not any(job["job_state"] in live for job in slurm.jobs().values())

        until(over, "the workload to end", PATIENCE_S)
        until(lambda: "|Unknown|" not in text(), "every end in the accounts", 60.0)
        (folder / "dump.txt").write_text(text())
        printed = [
            slurm.run("scontrol", "show", what).stdout for what in ("nodes", "partition", "config")
        ]
        printed.append(slurm.run("sacctmgr", "-P", "show", "assoc", f"format={ASSOC}").stdout)
        printed.append(slurm.run("sacctmgr", "-P", "show", "qos").stdout)
        (folder / "site.txt").write_text("\n".join(printed))
    yield folder / "dump.txt", folder / "site.txt"
