"""The public month that stands beside a demo: figures computed before, with their command.

They are the README's (`docs/figures.md` has all): a demo's minute has no room for 16 seeds of it.
"""

from __future__ import annotations

from dataclasses import dataclass

TRACE = "September 2020 of Venus (Helios), a public trace: 23,859 jobs on 1,080 GPUs"
SEEDS = "means over 16 seeds, of release 0.1.0"
COMMAND = (
    "pellucid compare --trace data/venus --track honest --seeds 16 "
    "--policies fifo,fifo-skip,tiresias,lucid,pellucid,srtf"
)


@dataclass(frozen=True, slots=True)
class Row:
    """A policy on the month: seconds, and hours of the longest wait of a job on over 8 GPUs."""

    policy: str
    what: str
    jct_s: int
    queue_s: int
    longest_h: int


ROWS = (
    Row("fifo", "first come, first served", 67_498, 55_729, 168),
    Row("fifo-skip", "small jobs may pass", 15_684, 3_914, 90),
    Row("tiresias", "stops running jobs", 14_691, 2_908, 202),
    Row("lucid", "ASPLOS'23", 13_535, 1_173, 139),
    Row("pellucid", "", 12_717, 659, 90),
    Row("srtf", "knows the future", 12_622, 837, 234),
)
