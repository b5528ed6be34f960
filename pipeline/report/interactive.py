"""Figures that a reader can filter: the columns with data of each job, and the scripts that draw
them.

The chart library is the one in the service's pages, embedded once. The page's security policy names
by hash which scripts it may run, and lets it contact no server.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import cycle
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup
from numpy.typing import NDArray

from pipeline.tables import Floats, sizes
from scheduler.charts.chart import DURATION_TICKS
from scheduler.core.plural import count

ROOM = 340_000  # bytes of columns, so that a page with the chart library stays below 2.5 MiB
GPU_GROUPS = ((1, 1), (2, 2), (3, 4), (5, 8), (9, 16), (17, 32), (33, 10**9))
LONGEST_NAME = 60

COLOURS = {  # s0 to s7 of the style sheet, on every page the same
    "pellucid": 0, "lucid": 1, "qssf": 2, "sjf": 3, "tiresias": 4, "easy": 5, "fifo": 6, "srtf": 7,
    "recorded": 7, "slurm": 6,
}  # fmt: skip
OTHERS = (5, 4, 3, 2, 1)


@dataclass(frozen=True)
class PolicyResult:
    """The waits and completion times of the same jobs under one policy, or as recorded.

    Attributes:
        name: name of the policy.
        colour: number of its colour in the style sheet (s0 to s7).
        wait_s, jct_s: wait and JCT of each job, seconds, (jobs,); NaN if the job did not end.
        oracle: whether the policy knows true durations.
    """

    name: str
    colour: int
    wait_s: Floats
    jct_s: Floats
    oracle: bool = False


def colours(names: Sequence[str], known: Mapping[str, int] = COLOURS) -> list[int]:
    """Return the number of a colour in the style sheet (s0 to s7) for each policy name. Names in
    `known` have fixed colours; any other gets a colour that no other name has, as long as there are
    any."""
    taken = {known[name] for name in names if name in known}
    free = cycle([c for c in OTHERS if c not in taken] or OTHERS)
    return [known[name] if name in known else next(free) for name in names]


def gpu_group(low: int, high: int) -> str:
    """Return in words the group of jobs with `low` to `high` GPUs: "1 GPU", "3–4 GPUs", "> 32
    GPUs"."""
    if low == high:
        return count(low, "GPU")
    return f"> {low - 1} GPUs" if high >= 10**9 else f"{low}–{high} GPUs"


def columns(
    jobs: pa.Table, results: Sequence[PolicyResult], explained: Mapping[str, str] | None = None
) -> Mapping[str, Any]:
    """Return the data from which a page draws its figures, as columns with one entry per job, small
    enough for a page.

    Args:
        jobs: table with job_id, vc, gpus and submit_time (seconds since the epoch), one row per
            job.
        results: results of the jobs under each policy, in the order of `jobs`.
        explained: job id -> id of the page's element that explains the job; these jobs are always
            kept.

    If there are too many jobs for a page, some are left out, evenly over the submit times; `share`
    is the share that is kept.
    """
    explained = explained or {}
    order = np.argsort(jobs["submit_time"].to_numpy(), kind="stable")
    whole = _columns(jobs, results, explained, order)
    size = len(json.dumps(whole, separators=(",", ":")))
    if size <= ROOM:
        return whole
    shown = pc.is_in(jobs["job_id"], pa.array(list(explained), pa.string())).to_numpy()
    at = np.linspace(0, len(order) - 1, int(0.97 * len(order) * ROOM / size)).astype(int)
    kept = set(at.tolist()) | set(np.flatnonzero(shown[order]))
    return _columns(jobs, results, explained, order[sorted(kept)])


def _columns(
    jobs: pa.Table,
    results: Sequence[PolicyResult],
    explained: Mapping[str, str],
    chosen: NDArray[np.intp],
) -> Mapping[str, Any]:
    rows = jobs.take(pa.array(chosen))
    ids, vcs = rows["job_id"].to_pylist(), [*sizes(rows["vc"])]
    gpus = rows["gpus"].to_numpy()
    first = pc.min(jobs["submit_time"]).as_py() or 0.0
    return {
        "of": len(jobs),
        "share": len(rows) / max(len(jobs), 1),
        "first": first,
        "id": [job[:LONGEST_NAME] for job in ids],
        "vc": [vcs.index(vc) for vc in rows["vc"].to_pylist()],
        "vcs": [vc[:LONGEST_NAME] for vc in vcs],
        "gpus": gpus.tolist(),
        "sizes": [
            [gpu_group(low, high), low, high]
            for low, high in GPU_GROUPS
            if ((gpus >= low) & (gpus <= high)).any()
        ],
        "at": _whole(rows["submit_time"].to_numpy() - first),
        "results": [
            {
                "name": result.name,
                "colour": result.colour,
                "oracle": result.oracle,
                "wait": _whole(result.wait_s[chosen]),
                "jct": _whole(result.jct_s[chosen]),
            }
            for result in results
        ],
        "explained": {job: explained[job] for job in ids if job in explained},
        "ticks": DURATION_TICKS,
    }


def _whole(seconds: Floats) -> list[int | None]:
    """Return seconds rounded to integers; None for NaN."""
    return [None if np.isnan(s) else round(s) for s in seconds.astype(np.float64).tolist()]


# --- scripts -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scripts:
    """The scripts of a page, and its content security policy, which allows only these scripts.

    `library`: the chart library, compressed and in base64; the first lines of `figures` unpack it.
    """

    library: str
    figures: Markup
    policy: str


@cache
def scripts(columns: bool) -> Scripts:
    """Return the scripts of a page with charts. With `columns`, include those that draw figures
    from the columns of jobs."""
    static = files("scheduler.service.pages").joinpath("static")
    packed = static.joinpath("vendor", "vega.min.js.gz").read_bytes()
    own = files("pipeline.report").joinpath("templates")
    parts = [own.joinpath("unpack.js"), static.joinpath("charts.js")]
    if columns:
        parts += [own.joinpath(name) for name in ("figures.js", "choose.js")]
    figures = "\n" + "\n".join(part.read_text("utf-8") for part in parts)
    allowed = (gzip.decompress(packed), figures.encode())
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(one).digest()).decode()}'" for one in allowed
    )
    return Scripts(base64.b64encode(packed).decode(), Markup(figures), policy(hashes))


def policy(scripts: str = "'none'") -> str:
    """Return the content security policy of a page: it may show itself and run the scripts allowed
    by `scripts`, and contact no server."""
    return (
        f"default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
