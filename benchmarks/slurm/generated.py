"""Draws, from a seed, a site as some university might have it, with the jobs that its users
submit.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.slurm.config import Own
from benchmarks.slurm.university import PRIORITY, gres, of_nodes
from benchmarks.slurm.workload import USERS

KINDS = {
    "2080ti": "turing", "a100": "ampere,big", "h100": "hopper,big", "a100_3g.20gb": "ampere",
    "rtx_6000_ada": "ada", "v100": "volta",
}  # fmt: skip
HIDDEN, ROOTS = "zzhidden", "zzroot"  # names that no sentence has by chance
SENT_S = 45.0  # from the first submission to the last


@dataclass(frozen=True, slots=True)
class Order:
    """A submission that will be made.

    Attributes:
        at: seconds after the first submission.
        options: options of sbatch, without the script; `%J` in them stands for a job id.
        after: index of the submission which `%J` refers to; None: `%J` is not used.
    """

    at: float
    user: str
    options: tuple[str, ...]
    runs_s: float
    after: int | None = None

    def command(self, *more: str, after: str = "0") -> list[str]:
        """Return the words of the sbatch command that makes this submission.

        Args:
            more: further options.
            after: id that replaces `%J`.
        """
        said = [*more, *(one.replace("%J", after) for one in self.options)]
        head = ["sbatch", "--parsable", "--output=/dev/null", "--chdir=/tmp"]
        wrap = [f"--wrap=sleep {self.runs_s:g}"]
        # accounting has no quotes: of a command, what is behind them is not known to be an option
        return [*head, *wrap, *said] if ":" in said else [*head, *said, *wrap]


@dataclass(frozen=True, slots=True)
class Generated:
    """A generated site.

    Attributes:
        own: its nodes, and lines of slurm.conf.
        accounting: lines for `sacctmgr`.
        settings: lines for `scontrol`.
        orders: the submissions that will be made.
        past: submissions that count as having run before.
        lost_node: node that goes down during the run; "": none.
        enforced: whether `sbatch` refuses jobs that exceed their partition's limits.
        weighed: whether priorities are sums of weighted terms, fair share among them.
    """

    seed: int
    own: Own
    accounting: tuple[str, ...]
    settings: tuple[str, ...]
    orders: tuple[Order, ...]
    lost_node: str
    enforced: bool
    weighed: bool
    past: tuple[Order, ...]


class _Maker:
    def __init__(self, seed: int, jobs: int) -> None:
        self.seed, self.jobs, self.chance = seed, jobs, random.Random(seed)
        self.later = random.Random(f"{seed}/later")  # of what is drawn beside
        self.kinds_of_nodes = random.Random(f"{seed}/constraints")
        self.nodes = self._nodes()
        self.kinds = sorted({kind for _, _, gpus, _ in self.nodes for kind in gpus})

    def some(self, share: float) -> bool:
        return self.chance.random() < share

    def _nodes(self) -> list[tuple[int, int, dict[str, int], str]]:
        chance, found = self.chance, []
        kinds = chance.sample(sorted(KINDS), 3)
        for index in range(chance.randint(4, 6)):
            kind = kinds[min(index, 2)] if index < 3 else chance.choice(kinds)
            gpus = {kind: chance.choice((1, 2, 4, 4, 8))} if index == 0 or self.some(0.8) else {}
            if gpus and gpus[kind] < 5 and self.some(0.2):
                gpus[chance.choice([one for one in kinds if one != kind])] = 2
            features = [KINDS[one] for one in gpus] + ["ib"] * self.some(0.5)
            more = f"Weight={chance.choice((1, 1, 5, 10, 50))}"
            if features:
                more += f" Feature={','.join(dict.fromkeys(','.join(features).split(',')))}"
            cpus = chance.choice((8, 16, 32))
            found.append((cpus, chance.choice((16_000, 64_000, 128_000)), gpus, more))
        return found

    def _part(self, least: int = 1, spared: int = 0) -> str:
        """Return a host list with some of the nodes, drawn at random: `least` or more of them, with
        `spared` or more left out.
        """
        there = range(1, len(self.nodes) + 1)
        chosen = self.chance.sample(there, self.chance.randint(least, len(self.nodes) - spared))
        return ",".join(f"n{number}" for number in sorted(chosen))

    def partitions(self) -> list[str]:
        chance = self.chance
        found = [
            f"PartitionName=main Nodes=n[1-{len(self.nodes)}] Default=YES MaxTime=60 "
            f"DefaultTime=10 PriorityTier=5 PriorityJobFactor=100 State=UP",
            f"PartitionName=long Nodes={self._part(2)} MaxTime=7-0 DefaultTime=60 PriorityTier=5 "
            f"PriorityJobFactor=50 State=UP" + " DefMemPerGPU=6000 DefCpuPerGPU=2" * self.some(0.5),
            f"PartitionName={ROOTS} Nodes=n[1-{len(self.nodes)}] RootOnly=YES PriorityTier=20 "
            f"Hidden={chance.choice(('YES', 'NO'))} State=UP",
        ]
        if self.some(0.7):
            found.append(
                f"PartitionName={HIDDEN} Nodes={self._part()} Hidden=YES MaxTime=120 "
                f"PriorityTier={chance.choice((1, 5, 9))} State=UP"
            )
        if self.some(0.6):
            found.append(
                f"PartitionName=scav Nodes={self._part(2)} MaxTime=60 PriorityTier=1 "
                f"PreemptMode={chance.choice(('REQUEUE', 'CANCEL'))} State=UP"
            )
        if self.some(0.5):
            found.append(
                f"PartitionName=chemp Nodes={self._part()} AllowAccounts=chem MaxTime=120 "
                f"PriorityTier={chance.choice((5, 8))} MaxNodes={chance.choice((1, 2))} State=UP"
            )
        if self.later.random() < 0.3:
            found.append(
                f"PartitionName=lean Nodes={self._part()} MaxTime=60 PriorityTier=5 State=UP "
                f"MaxMemPerNode={self.later.choice((8_000, 16_000))} DefMemPerNode=500"
            )
        return found

    def made(self) -> Generated:
        chance = self.chance
        partitions = self.partitions()
        names = [one.split()[0].partition("=")[2] for one in partitions]
        preempts, enforced, weighed = "scav" in names, self.some(0.5), self.some(0.8)
        conf = [
            "GresTypes=gpu",
            "Licenses=matlab:2,ansys:4",
            "SchedulerParameters=bf_interval=2,sched_interval=5,bf_continue,bf_window=1440",
            "AccountingStorageEnforce=associations,limits,qos,safe",
            f"AccountingStorageTRES=gres/gpu,gres/gpu:{self.kinds[0]},license/matlab",
            *(["EnforcePartLimits=ALL"] * enforced),
            *(["PreemptType=preempt/partition_prio", "PreemptMode=REQUEUE"] * preempts),
            *(PRIORITY if weighed else ["PriorityType=priority/basic"]),
        ]

        def lines(ports: Sequence[int]) -> list[str]:
            return [*conf, *of_nodes(ports, self.nodes), *partitions]

        write: Callable[[Path], str] = partial(gres, nodes=self.nodes)
        own, accounting = Own(len(self.nodes), write, lines), self.accounting(names)
        settings = self.reservations()
        if preempts and self.some(0.5):
            settings = ("update partitionname=scav qos=pscav", *settings)
        orders = self.orders(names, any("course" in one for one in settings))
        lost = f"n{chance.randint(1, len(self.nodes))}" if self.some(0.4) else ""
        self.chance, self.jobs = random.Random(f"{self.seed}/past"), 2 * self.jobs
        past = self.orders(names, False)
        return Generated(
            self.seed, own, accounting, settings, orders, lost, enforced, weighed, past
        )

    def accounting(self, names: Sequence[str]) -> tuple[str, ...]:
        chance = self.chance
        group = chance.choice(("GrpTRES=gres/gpu=6", "GrpTRES=cpu=24", "GrpJobs=4", "MaxJobs=3"))
        found = [
            "add account physics Fairshare=30",
            f"add account chem Fairshare=10 {group}",
            "add account bio parent=physics Fairshare=5",
            "add qos high Priority=100 MaxTRESPerUser=gres/gpu=4",
            "add qos limited Priority=10 MaxJobsPerUser=2 GrpTRES=gres/gpu=5",
            "add qos pscav GrpTRES=gres/gpu=3",
            "modify account root set qos=normal,high,limited",
        ]
        for user, account in USERS.items():
            default = chance.choice(("", "", " DefaultQOS=limited", " DefaultQOS=high"))
            found.append(f"add user {user} Account={account} Fairshare=10{default}")
        found.append("add user news Account=bio")  # two accounts: chem by default
        if self.some(0.5) and "chemp" in names:
            found.append("add user irc Account=chem Partition=chemp")
        rare = (
            (0.3, "modify user news set DefaultAccount=bio"),
            (0.3, "add user games Account=bio Partition=long"),
            (0.3, "modify qos limited set UsageFactor=2"),
            (0.2, "modify qos high set MaxJobsAccruePerUser=2"),
            (0.2, "modify qos high set Flags=OverPartQOS"),
            (0.1, "modify qos limited set GrpTRESMins=cpu=100000"),
        )
        found += [words for share, words in rare if self.later.random() < share]
        return tuple(found)

    def reservations(self) -> tuple[str, ...]:
        chance, node = self.chance, f"n{self.chance.randint(1, len(self.nodes))}"
        found = (
            (0.5, f"maintenance users=root starttime=now+{chance.randint(5, 60)} duration=1 "
                  f"nodes={self._part(spared=2)} flags=maint,ignore_jobs"),
            (0.4, f"course accounts=bio starttime=now duration=60 nodes={node} flags=ignore_jobs"),
            (0.2, f"floating users=root starttime=now+30minutes duration=30 nodes={node} "
                  "flags=time_float,ignore_jobs"),
        )  # fmt: skip
        made = "create reservation reservationname="
        return tuple(f"{made}{words}" for share, words in found if self.some(share))

    def orders(self, names: Sequence[str], course: bool) -> tuple[Order, ...]:
        found: list[Order] = []
        for number in range(self.jobs):
            early = number < 0.7 * self.jobs
            at = 0.0 if early else round(self.chance.uniform(5, SENT_S), 1)
            found.append(self.order(at, number, names, course))
        return tuple(sorted(found, key=lambda one: one.at))

    def order(self, at: float, number: int, names: Sequence[str], course: bool) -> Order:
        chance, user = self.chance, self.chance.choice(list(USERS))
        options = self._size()
        limit = chance.choice((1, 2, 3, 5, 8, 30))
        runs_s = round(min(0.9 * 60 * limit, max(4.0, chance.lognormvariate(4.2, 0.6))), 1)
        options.append(f"--time={limit if chance.random() > 0.03 else 90}")
        open_to = [name for name in names if name not in (ROOTS, HIDDEN)]
        if self.some(0.5):
            options.append(f"--partition={','.join(chance.sample(open_to, chance.randint(1, 2)))}")
        elif self.some(0.06):
            options.append(f"--partition={chance.choice(list(names))}")
        if self.later.random() < 0.03:
            options.append(self.later.choice(("--contiguous", "--switches=1@10")))
        after = chance.randrange(max(0, number - 6), number) if number and self.some(0.1) else None
        if after is not None:
            kind = chance.choice(("afterok:%J", "afterany:%J", "afternotok:%J", "after:%J"))
            options.append(f"--dependency={kind}")
        options += self._more(course and user in ("proxy", "uucp", "news"))
        if self.kinds_of_nodes.random() < 0.06 and not any(
            "--constraint" in one for one in options
        ):
            options += self._several(options)
        if self.some(0.05) and after is None and not any("--array" in one for one in options):
            options += [":", *self._size()]
        return Order(at, user, tuple(options), runs_s, after)

    def _several(self, options: Sequence[str]) -> list[str]:
        """Return a random option of sbatch: a constraint to nodes that all have one of two
        features, or to a number of nodes with each of two features.
        """
        chance = self.kinds_of_nodes
        features = sorted(
            {one for _, _, gpus, _ in self.nodes for k in gpus for one in KINDS[k].split(",")}
        )
        one, other = chance.sample(features, 2) if len(features) > 1 else (*features, "ib")
        if any("--nodes" in option for option in options) or chance.random() < 0.5:
            return [f"--constraint=[{one}|{other}]"]
        return ["--nodes=2", f"--constraint=[{one}*1&{other}*1]"]

    def _size(self) -> list[str]:
        chance, kind = self.chance, self.chance.choice(self.kinds)
        most = max(gpus.get(kind, 0) for _, _, gpus, _ in self.nodes)
        count = chance.randint(1, most)
        found = [
            ["--gpus=1"], [f"--gpus={count}"], [f"--gres=gpu:{kind}:{count}"],
            [f"--gres=gpu:{kind}:1", "--cpus-per-task=4"], [f"--gpus={kind}:{count}", "--nodes=1"],
            [f"--gres=gpu:{kind}:{count}"], [f"--gpus-per-node={kind}:{count}"],
            ["--nodes=2", "--ntasks-per-node=1", f"--gres=gpu:{kind}:1"],
            ["--gpus=2", "--cpus-per-gpu=2"], [f"--ntasks={chance.choice((2, 4, 8))}"],
            ["--ntasks=4", "--mem-per-cpu=1G"], ["--nodes=1", "--exclusive"],
            ["--nodes=2", "--ntasks=8"], ["--gpus=1", "--mem-per-gpu=4G"],
        ]  # fmt: skip
        return list(chance.choice(found))

    def _more(self, in_course: bool) -> list[str]:
        chance = self.chance
        found: list[str] = []
        node = f"n{chance.randint(1, len(self.nodes))}"
        features = [
            one for _, _, gpus, _ in self.nodes for k in gpus for one in KINDS[k].split(",")
        ]
        feature, other = chance.choice(features), chance.choice(features)
        rare = (
            (0.06, f"--nodelist={node}"), (0.08, f"--exclude={node}"),
            (0.03, f"--begin=now+{chance.randint(5, 50)}"),
            (0.03, f"--deadline=now+{chance.choice((10, 40))}minutes"),
            (0.06, f"--constraint={feature}"), (0.03, f"--constraint={feature}|{other}"),
            (0.04, f"--licenses=matlab:{chance.choice((1, 2))}"), (0.05, "--mem=20G"),
            (0.06, "--qos=high"), (0.08, "--qos=limited"), (0.02, "--account=chem"),
            (0.05, "--nice=500"), (0.03, "--hold"), (0.02, "--dependency=singleton"),
            (0.07, f"--array=1-{chance.randint(2, 5)}{chance.choice(('', '%1', '%2'))}"),
            (0.5 if in_course else 0.0, "--reservation=course"),
        )  # fmt: skip
        for share, option in rare:
            name = option.partition("=")[0]
            if self.some(share) and not any(one.startswith(name) for one in found):
                found.append(option)
        return found


def generate(seed: int, jobs: int = 60) -> Generated:
    """Return the site of a seed with about `jobs` submissions. The same seed gives the same site
    and submissions.
    """
    return _Maker(seed, jobs).made()
