"""Draws, from a seed, a workload of short real jobs for the cluster of `university`, and sets up
its accounts.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

# user -> account; users that every Debian has, but nobody: 26.05 knows no user of that number
USERS = {
    "backup": "physics", "games": "physics", "mail": "physics", "news": "chem", "irc": "chem",
    "list": "chem", "proxy": "bio", "uucp": "bio",
}  # fmt: skip
ACCOUNTING = (
    "add account physics Fairshare=30",
    "add account chem Fairshare=10 GrpTRES=gres/gpu=14",
    "add account bio parent=physics Fairshare=5",
    *(f"add user {user} Account={account} Fairshare=10" for user, account in USERS.items()),
    "add qos high Priority=100 MaxTRESPerUser=gres/gpu=4",
    "add qos limited Priority=10 MaxJobsPerUser=2 GrpTRES=gres/gpu=6",
    "modify account root set qos=normal,high,limited",
)
LIMITS_MIN = (1, 2, 3, 5, 8)
# how often, options
KINDS: tuple[tuple[int, str], ...] = (
    (14, "--gpus=1"),
    (8, "--gres=gpu:2080ti:1 --cpus-per-task=2"),
    (6, "--gres=gpu:2080ti:2 --mem=8G"),
    (4, "--gres=gpu:2080ti:4 --cpus-per-task=4"),
    (2, "--gres=gpu:2080ti:8"),
    (8, "--gres=gpu:a100:1 --cpus-per-task=4"),
    (4, "--gres=gpu:a100:2 -C ampere"),
    (4, "--gres=gpu:a100_3g.20gb:1"),
    (6, "--gpus-per-node=1 -N2 --ntasks-per-node=1"),
    (3, "--gres=gpu:2080ti:4 -N2 --ntasks-per-node=2"),
    (4, "--gpus=2 --cpus-per-gpu=2"),
    (8, "-p cpu -n4"),
    (4, "-p cpu -n8 --mem-per-cpu=1G"),
    (3, "-p cpu -N1 -n4 -L matlab:1"),
    (3, "-n2 --mem=4G"),
    (1, "-p cpu -N1 --exclusive"),
)


@dataclass(frozen=True, slots=True)
class Order:
    """A submission that will be made: a job, or an array of jobs.

    Attributes:
        at: seconds after the first submission.
        options: options of sbatch.
        runs_s: seconds that the job runs; of an array, one number for each task.
        after: index of the job for which this one waits; None: it waits for none.
    """

    at: float
    user: str
    options: tuple[str, ...]
    runs_s: tuple[float, ...]
    after: int | None = None

    def command(self, after: str = "", longer: float = 1.0) -> list[str]:
        """Return the words of the sbatch command that submits the job.

        Args:
            after: id of the job for which this one waits; "": it waits for none.
            longer: factor on the planned running time, which stays within the job's time limit.
        """
        limit_s = 60.0 * float(self.options[-1].removeprefix("--time="))
        runs = " ".join(f"{min(one * longer, 0.9 * limit_s):g}" for one in self.runs_s)
        script = f"set -- {runs}; shift $((${{SLURM_ARRAY_TASK_ID:-1}} - 1)); sleep $1"
        options = [*self.options, f"--dependency=afterany:{after}"] if after else self.options
        head = ("sbatch", "--parsable", "--output=/dev/null", "--chdir=/tmp")
        return [*head, *options, "--wrap", script]


def orders(seed: int, jobs: int, every_s: float) -> list[Order]:
    """Return submissions of `jobs` jobs in all, one job every `every_s` seconds on average. Each
    task of an array is a job."""
    chance = random.Random(seed)
    weights, kinds = zip(*KINDS, strict=True)
    found: list[Order] = []
    at, left = 0.0, jobs
    while left > 0:
        options = chance.choices(kinds, weights)[0].split()
        limit = chance.choice(LIMITS_MIN)
        on_gpu = "cpu" not in options and any("gpu" in one or "gres" in one for one in options)
        if on_gpu and chance.random() < 0.35:
            where = "long" if chance.random() < 0.6 else "short,long"
            options += ["-p", where] if "--ntasks-per-node=2" not in options else []
        tasks = min(left, chance.randint(2, 6)) if chance.random() < 0.07 else 1
        if tasks > 1:
            most = chance.choice(("", "%2", "%3"))
            options.append(f"--array=1-{tasks}{most}")
        options += {0: ["--qos=high"], 1: ["--qos=limited"], 2: ["--qos=limited"]}.get(
            chance.randrange(8), []
        )
        if chance.random() < 0.05:
            options.append("--nice=500")
        if chance.random() < 0.04:
            options.append(f"--begin=now+{chance.randint(5, 30)}")
        after = None
        if len(found) > 5 and chance.random() < 0.06:
            after = chance.randrange(len(found) - 5, len(found))
        runs = tuple(
            round(min(0.9 * 60 * limit, 50.0, max(3.0, chance.lognormvariate(2.6, 0.7))), 1)
            for _ in range(tasks)
        )
        user = chance.choice(list(USERS))
        options.append(f"--time={limit}")
        found.append(Order(at, user, tuple(options), runs, after))
        at += chance.expovariate(1.0 / (every_s * tasks))
        left -= tasks
    return found
