"""How fast `pellucid ingest` is, beside a plain pandas reader and DuckDB.

    python -m benchmarks.ingest --json

Writes a Helios-format file of 2 million rows (the Venus log over and over, ids and times shifted
each time), reads it with each contestant in a process of its own, and prints rows per CPU-second
(user and system time of the whole process, all threads, start of the interpreter included) and peak
resident memory. The budget stands in ``ingest_budget.json``; exit status 1 if it is not met.

The others do less: no validation, no quarantine, no duplicates, no UTC, no months, no digest.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.calibration import Calibration

ROWS = 2_000_000
VENUS = Path(__file__).resolve().parents[2] / "shared" / "data" / "venus" / "cluster_full_log.csv"
BUDGET = Path(__file__).with_name("ingest_budget.json")
DAYS_PER_COPY = 26
TIMES = ("submit_time", "start_time", "end_time")


def write_source(path: Path, rows: int) -> None:
    """The Venus log as ``cluster_log.csv``, repeated until there are so many rows."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv as csv

    wanted = ["job_id", "user", "vc", "gpu_num", "cpu_num", "state", "submit_time", "duration"]
    clock = csv.ConvertOptions(
        include_columns=wanted, column_types={"submit_time": pa.timestamp("s")}
    )
    log = csv.read_csv(VENUS, convert_options=clock)
    first = pc.cast(log["submit_time"], pa.int64())
    # The log has no start; any queueing delay will do, as long as it is not always the same.
    queue = pa.array([37 * i % 3600 for i in range(len(log))])
    nodes = pc.add(pc.divide(pc.subtract(log["gpu_num"], 1), 8), 1)
    with path.open("wb") as file:
        header = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time"
        file.write(f"{header},duration,queue\n".encode())
        for copy in range(-(-rows // len(log))):
            submit = pc.add(first, copy * DAYS_PER_COPY * 86_400)
            start = pc.add(submit, queue)
            columns = {
                "job_id": pc.add(log["job_id"], copy * 100_000),
                **{name: log[name] for name in ("user", "vc", "gpu_num", "cpu_num")},
                "node_num": nodes,
                "state": log["state"],
                "submit_time": _clock(submit),
                "start_time": _clock(start),
                "end_time": _clock(pc.add(start, log["duration"])),
                "duration": log["duration"],
                "queue": queue,
            }
            part = pa.table(columns).slice(0, rows - copy * len(log))
            csv.write_csv(part, file, csv.WriteOptions(include_header=False, quoting_style="none"))


def _clock(seconds: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.strftime(pc.cast(seconds, pa.timestamp("s")), format="%Y-%m-%d %H:%M:%S")


def run_pellucid(source: Path, out: Path) -> int:
    from pipeline.traces import ingest

    return ingest(source, out).kept


def run_pandas(source: Path, out: Path) -> int:
    import pandas as pd

    frame = pd.read_csv(source)
    for name in TIMES:
        frame[name] = pd.to_datetime(frame[name])
    frame.to_parquet(out)
    return len(frame)


def run_duckdb(source: Path, out: Path) -> int:
    import duckdb

    done = duckdb.sql(f"COPY (FROM read_csv('{source}')) TO '{out}' (FORMAT parquet)")
    if done is None:
        return int(duckdb.sql(f"SELECT count(*) FROM '{out}'").fetchall()[0][0])
    return int(done.fetchall()[0][0])


CONTESTANTS: dict[str, Callable[[Path, Path], int]] = {
    "pellucid": run_pellucid,
    "pandas": run_pandas,
    "duckdb": run_duckdb,
}


def measure(name: str, source: Path, folder: Path) -> dict[str, float]:
    """Run a contestant in a process of its own."""
    out = folder / f"out-{name}"
    reader, writer = os.pipe()
    command = [sys.executable, "-m", "benchmarks.ingest", "--contestant", name]
    command += ["--source", str(source), "--out", str(out)]
    pid = os.posix_spawn(
        sys.executable, command, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, writer, 1)]
    )
    os.close(writer)
    with os.fdopen(reader) as output:
        rows = output.read()
    _, status, usage = os.wait4(pid, 0)
    if status != 0:
        raise SystemExit(f"{name}: failed with status {status}")
    shutil.rmtree(out) if out.is_dir() else out.unlink()
    cpu = usage.ru_utime + usage.ru_stime
    return {
        "rows": float(rows),
        "cpu_s": cpu,
        "rows_per_cpu_s": float(rows) / cpu,
        "peak_rss_mib": usage.ru_maxrss / 1024,
    }


def benchmark(rows: int, runs: int) -> dict[str, Any]:
    """Median of the runs of each contestant, in turns, and the ratios to them."""
    calibration = Calibration()
    with tempfile.TemporaryDirectory(prefix="pellucid-ingest-") as name:
        folder = Path(name)
        source = folder / "cluster_log.csv"
        write_source(source, rows)
        found: dict[str, list[dict[str, float]]] = {name: [] for name in CONTESTANTS}
        for _ in range(runs):
            for contestant in CONTESTANTS:
                found[contestant].append(measure(contestant, source, folder))
        size = source.stat().st_size
    results = {
        name: {key: statistics.median(run[key] for run in runs_) for key in runs_[0]}
        for name, runs_ in found.items()
    }
    own = results["pellucid"]
    return {
        "rows": rows,
        "source_mib": round(size / 2**20, 1),
        "runs": runs,
        **{name: _rounded(result) for name, result in results.items()},
        "speed_ratio": {
            f"to_{name}": round(own["rows_per_cpu_s"] / result["rows_per_cpu_s"], 2)
            for name, result in results.items()
            if name != "pellucid"
        },
        "budget": calibration.judge(own, BUDGET),
    }


def _rounded(result: dict[str, float]) -> dict[str, float]:
    return {
        "cpu_s": round(result["cpu_s"], 2),
        "rows_per_cpu_s": round(result["rows_per_cpu_s"]),
        "peak_rss_mib": round(result["peak_rss_mib"]),
    }


def show(result: dict[str, Any]) -> None:
    print(f"{result['rows']:,} rows, {result['source_mib']} MiB, median of {result['runs']} runs")
    for name in CONTESTANTS:
        row = result[name]
        print(
            f"{name:>10}: {row['rows_per_cpu_s']:>10,.0f} rows per CPU-second,"
            f" {row['peak_rss_mib']:>6,.0f} MiB"
        )
    print(f"    ratios: {result['speed_ratio']}")
    print(f"    budget: {result['budget']}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--contestant", choices=list(CONTESTANTS), help=argparse.SUPPRESS)
    parser.add_argument("--source", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.contestant:
        print(CONTESTANTS[arguments.contestant](arguments.source, arguments.out))
        return 0
    if not VENUS.is_file():
        print("benchmarks.ingest: needs the Venus log in ../shared/data/venus", file=sys.stderr)
        return 2
    result = benchmark(arguments.rows, arguments.runs)
    print(json.dumps(result, indent=2)) if arguments.json else show(result)
    return 0 if result["budget"]["holds"] else 1


if __name__ == "__main__":
    sys.exit(main())
