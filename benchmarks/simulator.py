"""Speed of the simulator: the five policies on Venus, every decision recorded.

    python -m benchmarks.simulator --json [--data ../shared/data]

Prints CPU seconds and memory of the whole comparison, per policy and per decision, beside the
published simulator (1,345 CPU-seconds for one policy) and the physical limit (a compiled event
loop without recording, 0.1-0.3 s a policy), and whether the budget in `simulator_budget.json`
holds. Runs in a process of its own, so that memory is that of the comparison alone.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.calibration import program

BUDGET = Path(__file__).with_name("simulator_budget.json")
POLICIES = ("fifo", "sjf", "srtf", "qssf", "lucid")
PUBLISHED_LUCID_CPU_S = 1345.0  # measured on the unmodified published simulator
COMPILED_LOOP_CPU_S = 0.2  # a policy, compiled, nothing recorded


def measure(asked: argparse.Namespace) -> dict[str, Any]:
    """Run the comparison once, in a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, "-c", "from pipeline.cli import main; main()",
            "compare", "--trace", str(asked.data / "venus"), "--track", "published",
            "--policies", ",".join(POLICIES), "--out", folder, "--json",
        ]  # fmt: skip
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    result = json.loads(done.stdout)
    lucid = next(row for row in result["policies"] if row["policy"] == "lucid")
    decisions = sum(row["decisions_mean"] for row in result["policies"])
    return {
        "cpu_s": result["cpu_s"],
        "peak_rss_mib": result["peak_rss_mib"],
        "policies": {
            row["policy"]: {
                "cpu_s": row["cpu_s_mean"],
                "decisions": row["decisions_mean"],
                "avg_jct_s": row["avg_jct_s_mean"],
            }
            for row in result["policies"]
        },
        "microseconds_per_decision": 1e6 * result["cpu_s"] / decisions,
        "published_over_ours": PUBLISHED_LUCID_CPU_S / lucid["cpu_s_mean"],
        "ours_over_compiled_loop": result["cpu_s"] / len(POLICIES) / COMPILED_LOOP_CPU_S,
    }


if __name__ == "__main__":
    program(__doc__, BUDGET, measure, data={"type": Path, "default": Path("../shared/data")})
