"""The local backend with real processes: does each end exactly once, and how many a second?

    python -m benchmarks.local --json

Runs short commands (every tenth fails) on declared GPUs, twice: undisturbed, for the throughput,
and with the service killed with -9 again and again, for the books. Each command writes its own
name to a file when it really runs, which is held against what the backend reported. Prints whether
the budget in `local_budget.json` holds, and exits with 1 when it does not.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.calibration import Calibration
from scheduler.backends.base import Happened, Launch, Purpose
from scheduler.backends.local.backend import LocalBackend
from scheduler.backends.local.host import Host

BUDGET = Path(__file__).with_name("local_budget.json")
JOBS, WIDTH, KILLS = 1000, 32, 20


def launch_of(index: int, marks: Path) -> Launch:
    """A command that says it ran; every tenth fails."""
    script = 'echo "$PELLUCID_JOB_ID" >> "$MARKS"; exit ' + ("3" if index % 10 == 9 else "0")
    gpu = index % WIDTH
    return Launch(
        f"job{index}",
        1,
        Purpose.RUN,
        ("/bin/sh", "-c", script),
        (gpu // 8,),
        ((gpu % 8,),),
        environment={"MARKS": str(marks)},
        workdir="/",
    )


def drive(folder: Path, jobs: int) -> None:
    """Run what is not in the log of ends yet. May be killed anywhere and called again.

    Ends are logged before they are acknowledged, as the service does.
    """
    log, marks = folder / "ends.jsonl", folder / "marks"
    over = {json.loads(line)["job"] for line in _lines(log)}
    waiting = [i for i in reversed(range(jobs)) if f"job{i}" not in over]
    backend = LocalBackend(folder / "spool", Host.with_fake([8] * (WIDTH // 8)))
    in_flight: set[str] = set()
    with log.open("a") as ends:
        while waiting or in_flight:
            while waiting and len(in_flight) < WIDTH:
                launch = launch_of(waiting.pop(), marks)
                in_flight.add(launch.job_id)
                backend.launch(launch)
            reports = backend.reports(1.0)
            for report in reports:
                if report.what.final and report.job_id not in over:
                    line = {"job": report.job_id, "what": report.what, "code": report.exit_code}
                    ends.write(json.dumps(line) + "\n")
                    over.add(report.job_id)
                    in_flight.discard(report.job_id)
            ends.flush()
            backend.acknowledge(reports)
    while reports := backend.reports(0):  # in the log before a kill, and not acknowledged then
        backend.acknowledge(reports)
    backend.close()


def books(folder: Path, jobs: int) -> dict[str, int]:
    """What was reported, held against what the commands themselves wrote."""
    ran = Counter((folder / "marks").read_text().split())
    ends = Counter(json.loads(line)["job"] for line in _lines(folder / "ends.jsonl"))
    lines = [json.loads(line) for line in _lines(folder / "ends.jsonl")]
    wrong = sum(
        line["what"] == Happened.ENDED
        and line["code"] != (3 if int(line["job"][3:]) % 10 == 9 else 0)
        for line in lines
    )
    return {
        "jobs": jobs,
        "ended_once": sum(ends[f"job{i}"] == 1 for i in range(jobs)),
        "ran_twice": sum(count > 1 for count in ran.values()),
        "never_ran": jobs - len(ran),
        "wrong_exit_code": wrong,
        "not_ended": sum(line["what"] != Happened.ENDED for line in lines),
        "left_in_spool": len(list((folder / "spool" / "attempts").iterdir())),
    }


def _lines(path: Path) -> list[str]:
    """Whole lines of a file; one that was cut short is not there."""
    text = path.read_text() if path.exists() else ""
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole)
    return whole.splitlines()


def undisturbed(jobs: int) -> dict[str, Any]:
    """All jobs in one go."""
    with tempfile.TemporaryDirectory() as name:
        began, cpu = time.monotonic(), _cpu_s()
        drive(Path(name), jobs)
        seconds = time.monotonic() - began
        return {
            **books(Path(name), jobs),
            "seconds": round(seconds, 2),
            "jobs_per_s": round(jobs / seconds, 1),
            # shims are nobody's children in the end: only the service's own share is known
            "service_cpu_ms_per_job": round(1000 * (_cpu_s() - cpu) / jobs, 2),
        }


def killed(jobs: int, kills: int, seed: int = 0) -> dict[str, Any]:
    """The same in a process that is killed with -9 at random times."""
    source, done = random.Random(seed), 0
    with tempfile.TemporaryDirectory() as name:
        command = [sys.executable, "-m", "benchmarks.local", "--drive", name, "--jobs", str(jobs)]
        while True:
            process = subprocess.Popen(command, cwd=Path(__file__).parents[1])
            # from the first moments of opening to well into the work
            try:
                wait = source.uniform(0.3, 1.5) if done < kills else None
                status = process.wait(wait)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
                done += 1
                continue
            if status != 0:
                raise SystemExit(f"benchmarks.local: the driver ended with {status}")
            break
        return {**books(Path(name), jobs), "kills": done}


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(jobs: int, kills: int) -> dict[str, Any]:
    calibration = Calibration()
    found = {"undisturbed": undisturbed(jobs), "killed": killed(jobs, kills)}
    right = all(
        part["ended_once"] == jobs
        and not any(part[k] for k in ("ran_twice", "never_ran", "wrong_exit_code", "not_ended"))
        for part in found.values()
    )
    verdict = calibration.judge(found["undisturbed"], BUDGET)
    holds = right and verdict["holds"]
    return {**found, "cores": os.cpu_count(), "budget": verdict, "holds": holds}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.local", description=(__doc__ or "").split("\n", 1)[0]
    )
    parser.add_argument("--json", action="store_true", help="print JSON only")
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--drive", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.drive is not None:
        drive(arguments.drive, arguments.jobs)
        return
    if shutil.which("sh") is None:
        parser.error("needs /bin/sh for the commands it runs")
    figures = measure(arguments.jobs, arguments.kills)
    if arguments.json:
        print(json.dumps(figures, indent=2))
    else:
        for name in ("undisturbed", "killed"):
            print(name, *(f"{k}={v}" for k, v in figures[name].items()), sep="  ")
        print("within budget" if figures["holds"] else "OVER BUDGET")
    sys.exit(0 if figures["holds"] else 1)


if __name__ == "__main__":
    main()
