"""Makes the savings report of a replay: one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.replay.causes import WORDS
from pipeline.replay.claims import COVERED
from pipeline.replay.runs import PACKING_SCENARIO, profiling
from pipeline.replay.site import Site
from pipeline.report.interactive import COLOURS, PolicyResult, colours, columns
from pipeline.report.page import page, release
from pipeline.tables import floats
from scheduler.core.plural import count

PELLUCID = "pellucid"  # the variant that a verdict is about
SHOWN = 12  # users and partitions in a table
MONTHS = 24
LONGEST_NAME, LONGEST_NOTE = 60, 600
COUNTED = "the same, in the replay that savings are counted in"
LOSES_S = 60.0  # waiting longer by more than this counts as losing


def render(site: Site, found: Mapping[str, Any]) -> str:
    """Return the page as HTML. `found` is the result of `runs.replay` for the site."""
    variants = found["variants"]
    jobs, went = _results(site, found)
    return page(
        "replay.html",
        columns=None if found["refused"] else columns(jobs, went),
        release=release(),
        name=site.workload.name,
        counts=site.counts,
        quarantined=site.quarantined,
        ran=site.ran[-MONTHS:],
        window=site.window,
        since=_day(site.window["first"]),
        until=_day(pc.max(site.judged["submit"]).as_py()),
        shape=site.shape,
        cluster=site.workload.cluster,
        notes=[_clean(note, LONGEST_NOTE) for note in site.notes],
        missing=site.missing,
        nearer=site.nearer,
        recorded=found["recorded"],
        variants=variants,
        verdict=_verdict(found),
        backtest=_shown(found["backtest"]),
        tests=list(_tests(found)),
        misfit=found["misfit"],
        counted=found["counted"] is not None,
        refused=found["refused"],
        claimed=_claimed(found["claims"], PELLUCID),
        changed=_claimed(found["changed"], "changed", whole=True),
        changed_to=found.get("changed_to", []),
        covered=COVERED,
        ceiling=found["ceiling"],
        moved_s=found["moved_s"],
        apart=found["apart"],
        waited_for={
            **WORDS,
            "not eligible": "their begin time, a hold or another job, before they were eligible",
        },
        users=_changes(found["by_user"], found["against"]),
        vcs=_changes(found["by_vc"], found["against"]),
        seeds=found["seeds"],
        packing=PACKING_SCENARIO,
        profiling=profiling(site),
        known=found["duration_model"],
    )


def _tests(found: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (title, back-test) for each back-test. The page shows details of the first one."""
    for variant in found["variants"]:
        if variant["key"] not in found["backtests"]:
            continue
        yield variant["title"], found["backtests"][variant["key"]]
        if found["counted"] is not None and variant["key"] == found["against"]:
            yield COUNTED, found["counted"]


def _verdict(found: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the range of waiting that Pellucid would save compared with the variant that
    savings are counted against, over all jobs, in hours; `which` is less, more or unclear.
    Return None if nothing may be stated about the whole site."""
    whole = next((claim for claim in found["claims"] if not claim["by"]), None)
    if whole is None or PELLUCID not in whole["savings"]:
        return None
    saving = whole["savings"][PELLUCID]
    hours = [saving[name] * whole["jobs"] / 3600 for name in ("low_s", "high_s")]
    return {**whole, **saving, "low_hours": hours[0], "high_hours": hours[1]}


def _claimed(
    stated: Sequence[Mapping[str, Any]], variant: str, *, whole: bool = False
) -> list[Mapping[str, Any]]:
    """Return the rows of the table of parts (partitions, numbers of GPUs) for a variant, at
    most twice `SHOWN`, each with its saving (None if none is stated).

    Users are left out, because they have a table of their own.

    Args:
        stated: the claims of `runs.replay`, in its order.
        whole: begin with the row of all jobs.
    """
    parts = [claim for claim in stated if claim["by"] != "user" and (whole or claim["by"])]
    return [
        {**claim, "title": _title(claim), "saving": claim["savings"].get(variant)}
        for claim in parts[: 2 * SHOWN]
    ]


def _title(claim: Mapping[str, Any]) -> str:
    if not claim["by"]:
        return "all"
    if claim["by"] == "vc":
        return f"partition {_short(claim['name'])}"
    return f"jobs of {count(int(float(claim['name'])), 'GPU')}"


def _shown(backtest: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return a back-test with the names of partitions shortened for a table; None if there is
    none."""
    if backtest is None:
        return None
    return {
        **backtest,
        "by_vc": [{**row, "name": _short(row["name"])} for row in backtest["by_vc"]],
    }


def _day(epoch_s: float) -> str:
    return f"{datetime.fromtimestamp(epoch_s, UTC):%Y-%m-%d}"


def _results(site: Site, found: Mapping[str, Any]) -> tuple[pa.Table, list[PolicyResult]]:
    """Return two things: a table of the compared jobs, and their waits and completion times as
    recorded and in the first replay of each variant."""
    record = site.judged
    jobs = pa.table(
        {
            "job_id": [_short(job) for job in record["job_id"].to_pylist()],
            "vc": [_short(vc) for vc in record["vc"].to_pylist()],
            "gpus": record["gpus"],
            "submit_time": record["submit"],
        }
    )
    wait, ran = floats(record["wait_s"]), floats(record["ran_s"])
    labels = {variant["label"]: variant["key"] for variant in found["variants"]}
    own = {label: COLOURS["pellucid"] for label, key in labels.items() if key == PELLUCID}
    base = {label: COLOURS["slurm"] for label, key in labels.items() if key == found["against"]}
    looks = colours(["recorded", *labels], {**COLOURS, **base, **own})
    went = [PolicyResult("recorded", looks[0], wait, wait + ran)]
    for (label, key), look in zip(labels.items(), looks[1:], strict=True):
        of = found["by_job"][key]
        went.append(
            PolicyResult(label, look, np.array(of["wait_s"], float), np.array(of["jct_s"], float))
        )
    return jobs, went


def _changes(rows: Sequence[Mapping[str, Any]], against: str | None) -> SimpleNamespace:
    """Return which of the groups of jobs in `rows` wait less or more under Pellucid: their numbers,
    and rows of the largest groups and of those that lose most.

    They are compared with the replay of the variant `against` (Slurm's own schedule, or plain
    backfill). If that is None, they are compared with the record."""
    base = "recorded_s" if against is None else f"{against}_s"
    changed = [
        {**row, "name": _short(row["name"]), "base_s": row[base], "change_s": change}
        for row in rows
        if (change := _change(row, base)) is not None
    ]
    lose = [row for row in changed if row["change_s"] > LOSES_S]
    return SimpleNamespace(
        gain=sum(row["change_s"] < -LOSES_S for row in changed),
        lose=len(lose),
        all=len(changed),
        rows=changed[:SHOWN],
        worst=sorted(lose, key=lambda row: -row["change_s"])[:SHOWN],
    )


def _change(row: Mapping[str, Any], base: str) -> float | None:
    after, before = row.get("pellucid_s", row[base]), row[base]
    return None if after is None or before is None else after - before


def _short(name: str) -> str:
    """Return a name from a dump for a table: cleaned, and cut to `LONGEST_NAME` characters."""
    return _clean(name, LONGEST_NAME)


def _clean(text: str, longest: int) -> str:
    """Return a text from a dump for a page: control characters replaced, and cut to `longest`
    characters."""
    shown = "".join(
        c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[: longest + 1]
    )
    return shown if len(shown) <= longest else shown[:longest] + "…"
