"""Starts a Slurm with fake GPUs, advise mode beside it, and jobs that wait; then asks Pellucid
questions and prints the answers.

    python -m benchmarks.slurm.demo            # until Ctrl-C
    python -m benchmarks.slurm.demo --once     # ask, print, and take everything down

The cluster has six nodes as a university has them, eight users, QOS with limits, a licence. Needs
root and Slurm's packages (`make slurm-demo` installs them). Nothing is left behind afterwards.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from shlex import join

from benchmarks.serving import serving
from benchmarks.slurm.cluster import SlurmCluster
from benchmarks.slurm.processes import SlurmError, until
from benchmarks.slurm.workload import ACCOUNTING, orders

PELLUCID = (sys.executable, "-c", "from pipeline.cli import main; main()")
LONGER = 8.0  # than the planned runs, so that there is time to ask
LAST = ("-p", "long", "--gres=gpu:2080ti:8", "-t", "8")  # many wait before it
ETA = ("--user", "games", "--", "-p", "short,long", "--gres=gpu:2080ti:4", "--time=5")


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Run advise mode in front of a Slurm with fake GPUs."
    )
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the jobs; the same seed gives the same jobs"
    )
    parser.add_argument(
        "--once",
        action="store_true",
        help=("end after the answers are printed, instead of waiting for Ctrl-C"),
    )
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all is taken down
    try:
        _say("Slurm comes up: slurmctld, six slurmd, slurmdbd on MariaDB (half a minute) ...")
        with SlurmCluster(university=True, accounting=True) as slurm:
            _fill(slurm, asked.seed, asked.jobs)
            folder = slurm.folder / "pellucid"
            folder.mkdir()
            words = ("--backend", "slurm", "--state-dir", str(folder), "--log-level", "error")
            database = ("--database", f"sqlite:///{folder}/pellucid.db")
            with serving(folder, *words, *database, environment=slurm.environment) as served:
                _show(slurm, {**slurm.environment, "PELLUCID_SERVER": served.address})
                if not asked.once:
                    _say("\nAll of it stays until Ctrl-C.")
                    signal.pause()
    except SlurmError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        pass
    _say("Taken down; nothing runs on.")


def _fill(slurm: SlurmCluster, seed: int, jobs: int) -> None:
    slurm.account(*ACCOUNTING)
    ids: list[str] = []
    for order in orders(seed, jobs, 0.01):
        after = "" if order.after is None else ids[order.after]
        ids.append(slurm.run(*order.command(after, LONGER), user=order.user).stdout.strip())
    states = [job["job_state"] for job in slurm.jobs().values()]
    _say(f"{jobs} jobs of eight users: {states.count('RUNNING')} run.")


def _show(slurm: SlurmCluster, own: dict[str, str]) -> None:
    """Ask every question of the demo once, and print each with its answer."""
    last = slurm.run("sbatch", "--parsable", "--chdir=/tmp", *LAST, "--wrap=sleep 9", user="games")
    job = last.stdout.strip()
    until(lambda: _asked(own, "why", job).returncode == 0, "the first look", 120.0)
    _say("\nIn another terminal, in this folder:")
    for name, value in own.items():
        _say(f"  export {name}={value}")
    for words in (("why", job), ("eta", *ETA), ("ps", "--limit", "5")):
        _say(f"\n$ .venv/bin/pellucid {join(words)}")
        answer = _asked(own, *words)
        if answer.returncode:
            raise SlurmError(answer.stderr.strip())
        _say(answer.stdout.rstrip())
    _say(f"\nThe pages: {own['PELLUCID_SERVER']}")


def _asked(own: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **own}
    return subprocess.run(
        [*PELLUCID, *words], env=environment, capture_output=True, text=True, check=False
    )


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
