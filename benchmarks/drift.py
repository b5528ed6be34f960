"""Measures the watch on drift: planted bugs that it finds within a day's jobs, and false alarms in
good weeks.

    python -m benchmarks.drift --json [--data ../shared/data] [--traces venus philly openb]

A day of a trace is changed as a bug would change it; the weeks before it are the site's past. Of
each kind of bug some are planted, on days and in virtual clusters drawn by chance. Its limit was
chosen on Venus. openb and Philly were looked at between changes of the watch, so their figures
flatter.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from features.watch import DAY_S, LIMIT, Seen, Watch, groups_of
from pipeline.traces import read_dataset
from pipeline.traces.ingestion import ingest

SOURCES = {
    "venus": ("venus/cluster_full_log.csv", "auto"),
    "philly": ("philly/philly.csv", "auto"),
    "openb": ("openb/openb_pod_list_default.csv", "auto"),
}
PAST_DAYS, GOOD_DAYS = 14, 28
FEWEST = 40  # jobs of a day, and of its virtual cluster, that a bug is planted in


@dataclass(frozen=True)
class Bug:
    """A kind of bug that is planted. `change` takes a job, the name of a virtual cluster and a
    source of chance, and returns the job as the bug would record it. An alarm that finds it has one
    of the texts `says`.
    """

    name: str
    change: Callable[[Seen, str, Random], Seen]
    says: tuple[str, ...]


def _in(vc: str, job: Seen, changed: Seen) -> Seen:
    return changed if job.vc == vc else job


def _new_team(job: Seen, vc: str, random: Random) -> Seen:
    user = job.user and f"new-{random.randrange(6)}"
    lasts_s = random.lognormvariate(10.0, 1.0)
    return _in(vc, job, job._replace(user=user, seconds=lasts_s, gpus=4))


SIZES = ("other numbers of GPUs", "one GPU only", "last")
BUGS = (
    Bug(
        "x60 in one VC",
        lambda j, vc, _: _in(vc, j, j._replace(seconds=60 * j.seconds)),
        ("longer",),
    ),
    Bug(
        "/60 in one VC",
        lambda j, vc, _: _in(vc, j, j._replace(seconds=j.seconds / 60)),
        ("shorter",),
    ),
    Bug("ms for s", lambda j, *_: j._replace(seconds=1000 * j.seconds), ("longer",)),
    Bug("minutes for s", lambda j, *_: j._replace(seconds=j.seconds / 60), ("shorter",)),
    Bug(
        "zone of +8 h",
        lambda j, *_: j._replace(submitted=j.submitted + 8 * 3600.0),
        ("in the day", "did not come"),
    ),
    Bug("nodes read as GPUs", lambda j, *_: j._replace(gpus=max(1, j.gpus // 8)), SIZES),
    Bug("cores read as GPUs", lambda j, *_: j._replace(gpus=6 * j.gpus), SIZES),
    Bug("a new team", _new_team, ("never seen", "GPUs", "longer")),
)


def changed_groups(before: Sequence[Seen], after: Sequence[Seen]) -> set[str]:
    """Return the groups of jobs of which a bug changed at least half. `before` and `after` are the
    same jobs without and with the bug.
    """
    all_of, of_those = Counter[str](), Counter[str]()
    for was, job in zip(before, after, strict=True):
        for group in groups_of(job):
            all_of[group] += 1
            of_those[group] += was != job
    return {group for group, n in of_those.items() if n * 2 >= all_of[group]}


def read(data: Path, trace: str) -> list[Seen]:
    """Return the jobs of a trace that had GPUs and whose duration is known."""
    name, kind = SOURCES[trace]
    with TemporaryDirectory() as scratch:
        out = Path(scratch) / trace
        ingest(data / name, out, format=kind)
        table = read_dataset(out)
    columns = {
        column: _plain(table, column)
        for column in ("submit_time", "duration_s", "gpus", "vc", "user", "gpu_type")
    }
    return [
        Seen(at / 1000.0, seconds, gpus, vc or "", user or "", kind or "")
        for at, seconds, gpus, vc, user, kind in zip(*columns.values(), strict=True)
        if seconds is not None and gpus
    ]


def _plain(table: pa.Table, name: str) -> list[Any]:
    column = table.column(name)
    plain: list[Any] = (column.cast("int64") if name == "submit_time" else column).to_pylist()
    return plain


def days_of(jobs: Sequence[Seen]) -> dict[int, list[Seen]]:
    found: dict[int, list[Seen]] = {}
    for job in jobs:
        found.setdefault(int(job.submitted // DAY_S), []).append(job)
    return found


def past_of(days: dict[int, list[Seen]], day: int) -> list[Seen]:
    """Return the jobs submitted in the weeks before a day that had ended when the day began."""
    before = range(day - PAST_DAYS, day)
    cut = day * DAY_S
    return [j for d in before for j in days.get(d, ()) if j.submitted + j.seconds < cut]


def judged(jobs: Sequence[Seen], limit: float, planted: int, seed: int) -> dict[str, Any]:
    """Let the watch judge good days, then the same days with bugs planted in them. Return a count
    of days with false alarms, and of the planted bugs that were found and missed.

    Args:
        limit: the watch's limit, above which it raises an alarm.
        planted: number of bugs to plant.
    """
    days, random = days_of(jobs), Random(seed)
    first = min(days)
    able = [d for d in sorted(days) if d >= first + PAST_DAYS and len(days[d]) >= FEWEST]
    good, false = able[:GOOD_DAYS], Counter[str]()
    said = list[str]()
    watches = {day: Watch(past_of(days, day), limit) for day in good}
    for day in good:
        alarms = watches[day].alarms(days[day])
        if alarms:
            false[str(day - first)] += len(alarms)
            said += [f"{alarms[0].group} {alarms[0].what} ({alarms[0].sum:.1f})"]
    found, missed = 0, Counter[str]()
    for k in range(planted):
        day = random.choice(good)
        sizes = Counter(job.vc for job in days[day])
        able_vcs = [vc for vc, n in sizes.items() if n >= FEWEST]
        vc = random.choice(able_vcs or [sizes.most_common(1)[0][0]])
        for turn in range(len(BUGS)):  # jobs of one GPU stay so, whatever is divided by eight
            bug = BUGS[(k + turn) % len(BUGS)]
            changed = [bug.change(job, vc, random) for job in days[day]]
            if sum(a != b for a, b in zip(changed, days[day], strict=True)) >= FEWEST / 2:
                break
        groups = changed_groups(days[day], changed)
        hit = any(
            alarm.group in groups and any(words in alarm.what for words in bug.says)
            for alarm in watches[day].alarms(changed)
        )
        found += hit
        missed[bug.name] += not hit
    return {
        "days": len(good),
        "days with a false alarm": len(false),
        "said": said,
        "planted": planted,
        "found": found,
        "missed": {name: n for name, n in missed.items() if n},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.drift", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--traces", nargs="+", choices=list(SOURCES), default=list(SOURCES))
    parser.add_argument("--limit", type=float, default=LIMIT)
    parser.add_argument("--planted", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    found = {
        trace: judged(read(given.data, trace), given.limit, given.planted, given.seed)
        for trace in given.traces
    }
    if given.json:
        print(json.dumps(found, indent=1))
        return 0
    for trace, one in found.items():
        print(
            f"{trace}: {one['found']} of {one['planted']} found; {one['days with a false alarm']}"
        )
        print(f"  of {one['days']} good days with an alarm; missed: {one['missed']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
