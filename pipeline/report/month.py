"""Figures of policies on a month of a public trace, which a demo shows. They were computed earlier,
and are shown with the command that computes them, and with the command that does the same for a
reader's own jobs.

They are the figures in the README (`docs/figures.md` has all). Computing 16 seeds would take longer
than a demo.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.report.paired import change

TRACE = "Venus (Helios), September 2020: 23,859 jobs on 1,080 GPUs"
SEEDS = "means over 16 seeds, release 0.1.0"
COMMAND = (
    "pellucid compare --trace data/venus --track honest --seeds 16 "
    "--policies fifo,fifo-skip,tiresias,lucid,pellucid,srtf"
)
INSTALL = "make install"
OWN = (
    "sacct -X -a -D -P -S 2026-01-01 -o ALL > dump.txt && "
    ".venv/bin/pellucid replay --sacct dump.txt"
)


@dataclass(frozen=True, slots=True)
class Row:
    """The figures of a policy on the month: mean JCT and mean wait in seconds, and the longest wait
    of a job on more than 8 GPUs in hours."""

    policy: str
    what: str
    jct_s: int
    queue_s: int
    longest_h: int


ROWS = (
    Row(policy="fifo", what="in order", jct_s=67_498, queue_s=55_729, longest_h=168),
    Row(policy="fifo-skip", what="small jobs may pass", jct_s=15_684, queue_s=3_914, longest_h=90),
    Row(policy="tiresias", what="stops running jobs", jct_s=14_691, queue_s=2_908, longest_h=202),
    Row(policy="lucid", what="ASPLOS'23, rebuilt here", jct_s=13_535, queue_s=1_173, longest_h=139),
    Row(policy="pellucid", what="", jct_s=12_717, queue_s=659, longest_h=90),
    Row(
        policy="srtf",
        what="knows the future, never shares",
        jct_s=12_622,
        queue_s=837,
        longest_h=234,
    ),
)
_JCT = {row.policy: row.jct_s for row in ROWS}
AGAINST = " and ".join(
    f"{change(_JCT['pellucid'] / _JCT[rival])} against {rival}" for rival in ("lucid", "fifo-skip")
)
