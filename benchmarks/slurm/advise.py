"""Measures how much advise mode slows a busy Slurm: its own commands are timed with the service
running and without.

The service runs as an ordinary user. Time is divided into pairs of windows; in one window of each
pair, chosen by lot, the service is stopped (SIGSTOP). So both windows of a pair meet the same
slurmctld. A window is as long as the interval between two looks (readings of Slurm's state), and
holds one look.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.slurm.cluster import SlurmCluster
from benchmarks.slurm.processes import as_user, free_ports

USER, SERVICE = "backup", "daemon"  # whose jobs wait (26.05 refuses nobody); who runs the service
SERVE = "from pipeline.cli import main; main()"
DRAWS = 2000  # bootstrap
COMMANDS = ("squeue", "sbatch")

Times = dict[str, list[float]]  # seconds, by command


@dataclass
class Command:
    """The times of one of Slurm's commands.

    Attributes:
        without_s: its median time in seconds without the service.
        with_s: its median time in seconds with the service.
        ratio: median over pairs of its mean time with the service divided by that without.
        low, high: 95 % interval of `ratio`, by bootstrap over pairs.
        runs: number of times that it ran while the service ran.
    """

    without_s: float
    with_s: float
    ratio: float
    low: float
    high: float
    runs: int


@dataclass
class Advised:
    """What advise mode cost Slurm and the machine.

    Attributes:
        pending: number of jobs that waited.
        pairs: number of pairs of windows, one with the service and one without.
        looks: number of looks (readings of Slurm's state) that the service took.
        look_s: median length of a look in seconds.
        look_cpu_s: median processor seconds of a look within the service.
    """

    pending: int
    pairs: int
    interval_s: float
    looks: int
    look_s: float
    look_cpu_s: float
    commands: dict[str, Command] = field(default_factory=dict)


class Service:
    """A `pellucid serve` in advise mode that runs as an ordinary user, in a folder of that user."""

    def __init__(self, cluster: SlurmCluster, folder: Path, interval_s: float) -> None:
        file = folder / "service.yaml"
        file.write_text(
            json.dumps(
                {
                    "backend": "slurm",
                    "slurm_mode": "advise",
                    "slurm_interval_s": interval_s,
                    "lease_s": 600.0,  # it is stopped for longer than the lease lasts by default
                    "database": f"sqlite:///{folder}/pellucid.db",
                    "state_dir": f"{folder}/state",
                    "export_every": 0,
                    "port": free_ports(1)[0],
                }
            )
        )
        command = [*as_user(SERVICE), sys.executable, "-P", "-c", SERVE, "serve"]
        environment = {**os.environ, **cluster.environment, "HOME": str(folder)}
        self._log = folder / "service.log"
        self._taken = 0  # looks, when it went on last
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--config", str(file)],
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def go_on(self) -> None:
        """Let the stopped service run again. It polls Slurm at once, and next after an interval."""
        self._taken = len(self._took())
        self.signal(signal.SIGCONT)

    def halt(self) -> None:
        """Stop the service's processes (SIGSTOP) between two polls."""
        self.await_look(300.0)
        self.signal(signal.SIGSTOP)

    def signal(self, number: int) -> None:
        os.killpg(self.process.pid, number)

    def looks(self) -> int:
        return len(self._took())

    def await_look(self, patience_s: float) -> None:
        """Wait for the service's first poll of Slurm since `go_on` let it run again. Raise
        TimeoutError, with the end of its log, after `patience_s` seconds or once it has ended.
        """
        until = time.monotonic() + patience_s
        while time.monotonic() < until and self.process.poll() is None:
            if len(self._took()) > self._taken:
                return
            time.sleep(0.2)
        raise TimeoutError(f"advise did not look: {self._log.read_text()[-2000:]}")

    def look_s(self) -> float:
        """Return the median length of a poll, seconds."""
        return statistics.median(self._took())

    def look_cpu_s(self) -> float:
        """Return the median processor seconds that a poll costs the service, those of `squeue` left
        out.

        The first poll, which records the whole queue, does not count.
        """
        return statistics.median(self._took("cpu_ms")[1:])

    def _took(self, what: str = "ms") -> list[float]:
        looks = re.findall(rf'"{what}": (\d+).*"looked"', self._log.read_text())
        return [int(ms) / 1000 for ms in looks]


def advise(
    *,
    count: int = 10_000,
    pairs: int = 20,
    interval_s: float = 30.0,
    seed: int = 0,
    tell: Callable[[str], None] = lambda _: None,
) -> Advised:
    """Measure the cost of advise mode in a private cluster, all of whose GPUs are taken throughout.
    Return the result.

    Args:
        count: number of waiting jobs.
        pairs: number of pairs of windows.
        interval_s: seconds between two polls of the service, and length of a window.
        tell: called with each line of progress.
    """
    with (
        SlurmCluster() as cluster,
        tempfile.TemporaryDirectory(prefix="pellucid-advise-") as made,
    ):
        folder = Path(made)
        for _ in cluster.nodes:
            _submit(cluster, 8, "sleep 86400")
        began = time.monotonic()
        source = random.Random(seed)
        _fill(cluster, count, source)
        tell(f"{count} jobs submitted in {time.monotonic() - began:.0f} s")
        subprocess.run(["chown", SERVICE, folder], check=True)
        service = Service(cluster, folder, interval_s)
        try:
            service.await_look(300.0)
            tell("first look taken")
            service.halt()
            looks = service.looks()
            found: list[dict[bool, Times]] = []
            for pair in range(pairs):
                found.append({})
                for on in source.sample((False, True), 2):
                    if on:
                        service.go_on()
                    found[-1][on] = _window(cluster, interval_s, source)
                    if on:
                        service.halt()
                tell(f"pair {pair + 1} of {pairs}: {_told(found[-1])}")
            outcome = Advised(
                sum(job["job_state"] == "PENDING" for job in cluster.jobs().values()),
                pairs,
                interval_s,
                service.looks() - looks,
                service.look_s(),
                service.look_cpu_s(),
            )
        finally:
            service.signal(signal.SIGKILL)
            service.process.wait()
    for name in COMMANDS:
        both = [(pair[False][name], pair[True][name]) for pair in found]
        outcome.commands[name] = _compared(both, source)
    return outcome


def _submit(cluster: SlurmCluster, gpus: int, script: str) -> str:
    return cluster.run(
        "sbatch",
        "--parsable",
        f"--gpus={gpus}",
        "--time=600",
        "--output=/dev/null",
        "--chdir=/tmp",
        "--wrap",
        script,
        user=USER,
    ).stdout.strip()


def _fill(cluster: SlurmCluster, count: int, source: random.Random) -> None:
    wanted = [source.randint(1, 8) for _ in range(count)]
    with ThreadPoolExecutor(4) as pool:
        for _ in pool.map(lambda gpus: _submit(cluster, gpus, "sleep 600"), wanted):
            pass


def _window(cluster: SlurmCluster, length_s: float, source: random.Random) -> Times:
    """Run squeue and sbatch in turn for a number of seconds. Return the seconds that each call
    took, by command. The submitted jobs are cancelled at the end.
    """
    until = time.monotonic() + length_s - 1.0  # one second less: no second look in it
    times: Times = {name: [] for name in COMMANDS}
    submitted = []
    while time.monotonic() < until:
        began = time.perf_counter()
        cluster.run("squeue", "-h", user=USER)
        between = time.perf_counter()
        submitted.append(_submit(cluster, 1, "true"))
        times["squeue"].append(between - began)
        times["sbatch"].append(time.perf_counter() - between)
        time.sleep(source.uniform(0.0, 0.1))  # in step with nothing of slurmctld's
    cluster.run("scancel", *submitted)
    return times


def _told(pair: dict[bool, Times]) -> str:
    return ", ".join(
        f"{name} {statistics.mean(pair[False][name]):.4f} s, "
        f"with it {statistics.mean(pair[True][name]):.4f} s"
        for name in COMMANDS
    )


def _compared(both: list[tuple[list[float], list[float]]], source: random.Random) -> Command:
    """Return a command's times without and with the service. `both` holds, for each pair of
    windows, the times without and the times with it.
    """
    ratios = [statistics.mean(on) / statistics.mean(off) for off, on in both]
    draws = sorted(statistics.median(source.choices(ratios, k=len(ratios))) for _ in range(DRAWS))
    without = [time_s for off, _ in both for time_s in off]
    with_it = [time_s for _, on in both for time_s in on]
    return Command(
        round(statistics.median(without), 4),
        round(statistics.median(with_it), 4),
        round(statistics.median(ratios), 4),
        round(draws[int(0.025 * DRAWS)], 4),
        round(draws[int(0.975 * DRAWS)], 4),
        len(with_it),
    )
