"""The savings report: one self-contained page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from pipeline.explain.words import duration
from pipeline.replay.runs import PACKING_SCENARIO
from pipeline.replay.site import Site
from pipeline.report.charts import rows as bars
from pipeline.report.look import page, release

SHOWN = 12  # users and partitions in a table
LOSES_S = 60.0  # waiting longer than recorded by more than this counts as losing


def render(site: Site, found: Mapping[str, Any], known: Mapping[str, Any] | None) -> str:
    """The page.

    Args:
        found: of `runs.replay`.
        known: errors of the duration model on the last days; None when there were too few jobs.
    """
    variants = found["variants"]
    best = next((v for v in variants if v["key"] == "pellucid"), variants[-1])
    return page(
        "replay.html",
        release=release(),
        name=site.workload.name,
        counts=site.counts,
        shape=site.shape,
        cluster=site.workload.cluster,
        notes=site.notes,
        missing=site.missing,
        recorded=found["recorded"],
        variants=variants,
        best=best,
        chart=_chart(found),
        backtest=found.get("backtest"),
        users=_changes(found["by_user"]),
        vcs=_changes(found["by_vc"]),
        seeds=found["seeds"],
        packing=PACKING_SCENARIO,
        known=known,
    )


def _chart(found: Mapping[str, Any]) -> Markup:
    recorded = found["recorded"]["avg_wait_s"]
    items = [("recorded", recorded, duration(recorded))]
    items += [(v["label"], v["avg_wait_s"], duration(v["avg_wait_s"])) for v in found["variants"]]
    return bars("Average waiting", items, left=150, mark=recorded)


def _changes(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Who gains and who loses under Pellucid, against the record; those with most jobs shown."""
    changed = [
        {**row, "change_s": row["pellucid_s"] - row["recorded_s"]}
        for row in rows
        if row.get("pellucid_s") == row.get("pellucid_s")
    ]
    return {
        "gain": sum(row["change_s"] < -LOSES_S for row in changed),
        "lose": sum(row["change_s"] > LOSES_S for row in changed),
        "all": len(changed),
        "rows": sorted(changed, key=lambda row: -row["jobs"])[:SHOWN],
        "worst": sorted(
            (row for row in changed if row["change_s"] > LOSES_S), key=lambda row: -row["change_s"]
        )[:SHOWN],
    }
