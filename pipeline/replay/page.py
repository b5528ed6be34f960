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
MONTHS = 24
LONGEST_NAME = 60
LOSES_S = 60.0  # waiting longer than recorded by more than this counts as losing


def render(site: Site, found: Mapping[str, Any]) -> str:
    """The page. `found` is what `runs.replay` returned of the site."""
    variants = found["variants"]
    best = next((v for v in variants if v["key"] == "pellucid"), variants[-1])
    return page(
        "replay.html",
        release=release(),
        name=site.workload.name,
        counts=site.counts,
        quarantined=site.quarantined,
        ran=site.ran[-MONTHS:],
        window=site.window,
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
        known=found["duration_model"],
    )


def _chart(found: Mapping[str, Any]) -> Markup:
    recorded = found["recorded"]["avg_wait_s"]
    items = [("recorded", recorded, duration(recorded))]
    items += [(v["label"], v["avg_wait_s"], duration(v["avg_wait_s"])) for v in found["variants"]]
    return bars("Average waiting", items, left=150, mark=recorded)


def _changes(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Who gains and who loses under Pellucid; those with most jobs are shown.

    Against the replay of Slurm's rule, where there is one: like with like.
    """
    base = "easy_s" if rows and "easy_s" in rows[0] else "recorded_s"
    changed = [
        {**row, "name": _short(row["name"]), "base_s": row[base], "change_s": change}
        for row in rows
        if (change := row.get("pellucid_s", row[base]) - row[base]) == change
    ]
    return {
        "gain": sum(row["change_s"] < -LOSES_S for row in changed),
        "lose": sum(row["change_s"] > LOSES_S for row in changed),
        "all": len(changed),
        "rows": changed[:SHOWN],
        "worst": sorted(
            (row for row in changed if row["change_s"] > LOSES_S), key=lambda row: -row["change_s"]
        )[:SHOWN],
    }


def _short(name: str) -> str:
    """A name as it can stand in a table: no control characters, not endless."""
    shown = "".join(
        c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name[: LONGEST_NAME + 1]
    )
    return shown if len(shown) <= LONGEST_NAME else shown[:LONGEST_NAME] + "…"
