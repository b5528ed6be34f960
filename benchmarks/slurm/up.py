"""Starts a private cluster for a command, or until Ctrl-C. It leaves nothing behind.

python -m benchmarks.slurm.up -- sinfo -N
python -m benchmarks.slurm.up --accounting
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys

from benchmarks.slurm.cluster import SlurmCluster
from benchmarks.slurm.processes import SlurmError


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Run a Slurm with fake GPUs, for a command or until Ctrl-C."
    )
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--gpus", type=int, default=8, help="GPUs on each node (at most 8)")
    parser.add_argument(
        "--accounting", action="store_true", help="also run slurmdbd, so that Slurm keeps accounts"
    )
    parser.add_argument(
        "command",
        nargs="*",
        help=("command to run with SLURM_CONF set; without a command, wait for Ctrl-C"),
    )
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the cluster is taken down
    try:
        with SlurmCluster(asked.nodes, asked.gpus, asked.accounting) as slurm:
            sys.exit(_use(slurm, asked.command))
    except SlurmError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        pass


def _use(slurm: SlurmCluster, command: list[str]) -> int:
    if command:
        return subprocess.run(command, env={**os.environ, **slurm.environment}).returncode
    for name, value in slurm.environment.items():
        print(f"export {name}={value}")
    print("Ctrl-C takes it down.", file=sys.stderr, flush=True)
    signal.pause()
    return 0


if __name__ == "__main__":
    main()
