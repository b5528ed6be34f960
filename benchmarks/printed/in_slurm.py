"""How long real trainings will take, as the service says it in front of a real Slurm.

    python -m benchmarks.printed.in_slurm --keep FOLDER --json [--slower 5]

Each training that `libraries.py --keep` has kept becomes a job of real Slurm daemons with fake GPUs,
whose script runs the command, as a program of its own name. It prints what was printed, when it
was. The follower of the modes advise and order reads the scripts and output files. Judged as there:
what it knows from what was printed in the first third of the run, beside what the service without
Slurm says then, and what it says of a second run with another amount at its submission.
Needs root and the packages that `make slurm-test` installs.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.printed.__main__ import Played, play
from benchmarks.printed.libraries import NEAR, NEAR_AGAIN, SEEN, right
from benchmarks.slurm import SlurmCluster
from features.commands import of_command
from features.progress import Progress
from scheduler.assembly import CoreSpec
from scheduler.core.durations import seconds_of
from scheduler.service.log.header import FOLLOWED, LogHeader
from scheduler.slurm.follow.follower import Follower, Following
from scheduler.slurm.follow.outputs import Outputs
from scheduler.slurm.read.client import Slurm
from scheduler.slurm.read.shape import Shape
from scheduler.slurm.read.table import Table

USER = "games"
LOOK_S = 2.0  # the service's own is 30: these are short
PATIENCE_S = 120.0  # beyond the longest of them
# stands for `python` in the jobs' PATH
PLAYS = """#!{python}
import json, sys, time
began = time.monotonic()
_, *runs = json.load(open("{folder}/" + sys.argv[1] + ".json"))
parts, took_s = next(run[1:] for run in runs if run[0][3:] == sys.argv[2:])
for at, text in parts:
    time.sleep(max(0.0, at - (time.monotonic() - began)))
    print(text, end="", flush=True)
time.sleep(max(0.0, took_s - (time.monotonic() - began)))
"""
Kept = tuple[int, list[Any], list[Any]]  # amount, run, second run: (command, parts, seconds)


class _Site:
    """A Slurm with a follower, and the jobs that were submitted to it."""

    def __init__(self, slurm: SlurmCluster, folder: Path) -> None:
        self.slurm, self.folder = slurm, folder
        client = Slurm(slurm.environment)
        shape = Shape.followed(client.nodes())
        header = LogHeader(
            CoreSpec.of(shape.spec, "slurm"), time.time(), backend=FOLLOWED, names=shape.names
        )
        asked = Following(table=Table(client), outputs=Outputs(client))
        self.follower = Follower(header, shape, client, None, asked)

    def submit(self, name: str, command: list[str]) -> str:
        """Submit a script that runs a command. Return the job's id."""
        script = self.folder / f"{name}-{command[4]}.sh"
        runs = " ".join([command[0], f"{name}.py", *command[3:]])
        script.write_text(f"#!/bin/bash\n#SBATCH --gpus=1\nmodule list\n{runs}\n")
        script.chmod(0o755)
        path = f"ALL,PATH={self.folder}:/usr/bin:/bin"
        asked = [f"--export={path}", f"--job-name={name}", f"--output={self.folder}/%j.out"]
        said = self.slurm.run("sbatch", "--parsable", *asked, str(script), user=USER)
        return said.stdout.strip()

    def play(self, kept: dict[str, Kept]) -> dict[str, Played]:
        """Run the first run of each library. Return what was said of it, by library."""
        ids = {self.submit(name, run[0]): name for name, (_, run, _) in kept.items()}
        reports: dict[str, list[tuple[float, Progress]]] = {name: [] for name in kept}
        began = time.time()
        most_s = max(took_s for _, (_, _, took_s), _ in kept.values()) + PATIENCE_S
        while ids.keys() - self._over() and time.time() < began + most_s:
            self.follower.look()
            for job_id, progress in self.follower._planner.progress.items():
                said = reports[ids[job_id]]
                if not said or said[-1][1] is not progress:  # what it reads, it says a look later
                    said.append((progress.at_s, progress))
            time.sleep(LOOK_S)
        self.follower.look()
        return {name: Played(kept[name][1][2], said, 0.0) for name, said in reports.items()}

    def foreseen(self, name: str, run: list[Any]) -> float | None:
        """Return the duration that is foreseen of a job at its submission, seconds."""
        job_id = self.submit(name, run[0])
        self.follower.look()
        past = self.follower.memory.of(job_id)
        self.slurm.run("scancel", job_id)
        known = past is not None and past.predicted_s is not None
        return seconds_of(past.predicted_s) if past and past.predicted_s and known else None

    def _over(self) -> set[str]:
        jobs = self.slurm.jobs()
        return {str(job_id) for job_id, job in jobs.items() if job["job_state"] == "COMPLETED"}

    def close(self) -> None:
        """End the process that reads."""
        assert self.follower._outputs is not None
        self.follower._outputs.close()


def measured(kept: dict[str, Kept]) -> list[dict[str, Any]]:
    """Return for each training what was said of both of its runs, and how long they took."""
    folder = Path(tempfile.mkdtemp(prefix="pellucid-printed-", dir="/tmp"))
    try:
        folder.chmod(0o777)
        for name, one in kept.items():
            (folder / f"{name}.py.json").write_text(json.dumps(one))
        python = folder / "python"
        python.write_text(PLAYS.format(python=_plain_python(), folder=folder))
        python.chmod(0o755)
        with SlurmCluster() as slurm:
            site = _Site(slurm, folder)
            try:
                played = site.play(kept)
                again = {name: site.foreseen(name, one[2]) for name, one in kept.items()}
            finally:
                site.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    rows = []
    for name, (amount, (command, parts, took_s), (_, _, again_s)) in kept.items():
        seen, second = played[name].at(SEEN), again[name]
        alone = play(parts, took_s, of_command(command)).at(SEEN)
        rows.append(
            {
                "library": name,
                "amount": amount,
                "took_s": round(took_s, 1),
                "said": round(seen.total_s / took_s, 3) if seen else None,
                "said_alone": round(alone.total_s / took_s, 3) if alone else None,
                "interval_holds": seen.low_s <= took_s <= seen.high_s if seen else None,
                "second_took_s": round(again_s, 1),
                "second_foreseen": round(second / again_s, 3) if second else None,
            }
        )
    return rows


def _slower(one: Kept, by: float) -> Kept:
    """Return a training and its second run as they would have been on a slower machine."""
    runs = [
        [command, [(by * at, text) for at, text in parts], by * took_s]
        for command, parts, took_s in one[1:]
    ]
    return one[0], runs[0], runs[1]


def _plain_python() -> str:
    """Return a Python that every user may run."""
    return shutil.which("python3", path="/usr/bin:/bin") or sys.executable


def main() -> None:
    """Measure every training that is kept. Print a row each, and how many were right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--keep", required=True, help="folder of what was printed")
    parser.add_argument("--only", nargs="*", help="libraries; without it, all that are kept")
    parser.add_argument(
        "--slower", type=float, default=1.0, help="how many times as long they take"
    )
    wanted = parser.parse_args()
    files = {path.stem: path for path in sorted(Path(wanted.keep).glob("*.json"))}
    names = wanted.only or files
    kept = {name: json.loads(files[name].read_text("utf-8")) for name in names}
    rows = measured({name: _slower(one, wanted.slower) for name, one in kept.items()})
    figures = {
        "libraries": len(rows),
        "right": right([one["said"] for one in rows], NEAR),
        "right_alone": right([one["said_alone"] for one in rows], NEAR),
        "second_right": right([one["second_foreseen"] for one in rows], NEAR_AGAIN),
    }
    if not wanted.json:
        print(*rows, sep="\n")
    print(json.dumps(figures | ({"rows": rows} if wanted.json else {})))


if __name__ == "__main__":
    main()
