"""Measures how fast `pellucid ingest` is.

    python -m benchmarks.ingest --json

Writes a Helios-format file of 2 million rows (the Venus log over and over, ids and times shifted
each time), reads it in a process of its own, and prints rows per CPU-second (user and system time
of the whole process, all threads, start of the interpreter included) and peak resident memory. The
budget stands in ``ingest_budget.json``; exit status 1 if it is not met.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.calibration import program, spent

ROWS = 2_000_000
VENUS = Path(__file__).resolve().parents[2] / "shared" / "data" / "venus" / "cluster_full_log.csv"
BUDGET = Path(__file__).with_name("ingest_budget.json")
DAYS_PER_COPY = 26


def write_source(path: Path, rows: int) -> None:
    """Write the Venus log as ``cluster_log.csv``, repeated until the file has `rows` rows."""
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


def measure(source: Path, out: Path) -> dict[str, float]:
    """Ingest a source in a process of its own, and remove `out`. Return rows, CPU seconds and
    peak memory.
    """
    read = (
        "import sys; from pathlib import Path; from pipeline.traces import ingest; "
        "print(ingest(*map(Path, sys.argv[1:])).kept)"
    )
    rows, cpu_s = spent(sys.executable, "-c", read, str(source), str(out))
    shutil.rmtree(out)
    return {
        "rows": float(rows),
        "cpu_s": round(cpu_s, 2),
        "rows_per_cpu_s": round(float(rows) / cpu_s),
        "peak_rss_mib": round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024),
    }


def benchmark(asked: argparse.Namespace) -> dict[str, Any]:
    """Ingest the file several times. Return the median of each figure."""
    if not VENUS.is_file():
        sys.exit("benchmarks.ingest: needs the Venus log in ../shared/data/venus")
    with tempfile.TemporaryDirectory(prefix="pellucid-ingest-") as name:
        source = Path(name, "cluster_log.csv")
        write_source(source, asked.rows)
        found = [measure(source, Path(name, "out")) for _ in range(asked.runs)]
    middle = {key: statistics.median(run[key] for run in found) for key in found[0]}
    return {**middle, "runs": asked.runs}


if __name__ == "__main__":
    program(
        __doc__,
        BUDGET,
        benchmark,
        rows={"type": int, "default": ROWS},
        runs={"type": int, "default": 3},
    )
